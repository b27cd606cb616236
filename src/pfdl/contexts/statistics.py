"""What a picture is made of, and not what it shows: the statistics of simple filters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["image_statistics"]

WIDTH, LEVELS, BATCH = 64, 3, 256


@torch.no_grad()
def image_statistics(images: Tensor, *, seed: int = 0) -> Tensor:
    """Describe images by colours and textures, without a trained network.

    Three layers of 64 random 3×3 filters with a ReLU, each at half the resolution of the one before; of every map the
    mean and the standard deviation over the picture. Where something stands does not change them much, so they tell of
    the scene more than of the object: give them to :func:`pfdl.infer_contexts` where no pretrained network is at hand.

    Args:
        images: Bytes or numbers, shape (n, channels, height, width), of at least 4×4 pixels.
        seed: Of the filters.

    Returns:
        Shape (n, 384), on the device of the images. Channels are scaled by their mean and deviation in all of them.

    Raises:
        ValueError: If the shape is not that of images.

    Example:
        >>> image_statistics(torch.rand(5, 3, 16, 16)).shape
        torch.Size([5, 384])
    """
    if images.dim() != 4 or min(images.shape[2:]) < 2 ** (LEVELS - 1) or 0 in images.shape:
        raise ValueError(
            f"images have shape {tuple(images.shape)}; give (n, channels, height, width) with at least 4×4 pixels."
        )
    filters = [bank.to(images.device) for bank in _filters(images.shape[1], seed)]
    scale = _mean_and_deviation(images)
    return torch.cat([_describe(batch.float(), filters, *scale) for batch in torch.split(images, BATCH)])


def _filters(channels: int, seed: int) -> list[Tensor]:
    """Normal weights, every filter of length √2, which keeps the scale of the maps through ReLUs."""
    generator = torch.Generator().manual_seed(seed)
    banks = [torch.randn(WIDTH, inputs, 3, 3, generator=generator) for inputs in (channels, WIDTH, WIDTH)]
    return [2**0.5 * bank / bank.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for bank in banks]


def _mean_and_deviation(images: Tensor) -> tuple[Tensor, Tensor]:
    sums = [
        torch.stack([batch.double().sum((0, 2, 3)), batch.double().square().sum((0, 2, 3))])
        for batch in torch.split(images, BATCH)
    ]
    mean, square = torch.stack(sums).sum(0) / (images.numel() / images.shape[1])
    deviation = (square - mean.square()).clamp(min=0).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1.0)
    return mean.float().view(1, -1, 1, 1), deviation.float().view(1, -1, 1, 1)


def _describe(images: Tensor, filters: list[Tensor], mean: Tensor, deviation: Tensor) -> Tensor:
    maps = (images - mean) / deviation
    found = []
    for level, bank in enumerate(filters):
        maps = F.relu(F.conv2d(maps if level == 0 else F.avg_pool2d(maps, 2), bank, padding=1))
        found += [maps.mean((2, 3)), maps.std((2, 3), correction=0)]
    return torch.cat(found, 1)
