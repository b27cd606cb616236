"""What an image is made of, and not what it shows: the statistics of simple filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

WIDTH = 64
LEVELS = 3
BATCH = 256

LARGEST = 256
"""Larger images are shrunk by averaging until the shorter side is at most twice this: textures of
single pixels in millions of them take long and tell little about the context."""

PIXELS = 2**22
PIXELS_ON_CPU = 2**15
"""Most pixels that pass through the filters at once. On a CPU the maps of more do not fit in its
cache: that takes up to three times as long."""


@dataclass(frozen=True, eq=False)
class ImageStatistics:
    """Filters and the scale of the channels, so that images can be described batch by batch.

    Attributes:
        filters: A bank of filters for each level.
        mean: Mean of each channel, shape (1, channels, 1, 1).
        deviation: Standard deviation of each channel, shape (1, channels, 1, 1); 1 for a channel
            that never varies.
    """

    filters: tuple[Tensor, ...]
    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, batches: Iterable[Tensor], *, seed: int = 0) -> ImageStatistics:
        """Draw the filters and measure the channels in batches of images, shape (n, channels,
        height, width).
        """
        sums = torch.zeros(0)
        count = 0
        for images in batches:
            _check(images)
            values = images.double()
            of_batch = torch.stack([values.sum((0, 2, 3)), values.square().sum((0, 2, 3))])
            if count and of_batch.shape != sums.shape:
                raise ValueError(
                    f"images have {of_batch.shape[1]} channels after others had {sums.shape[1]};"
                    " give all the same."
                )
            sums = of_batch if not count else sums + of_batch
            count += images.numel() // images.shape[1]
        if not count:
            raise ValueError("there are no images to describe; give at least one.")
        mean, square = sums / count
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        deviation = torch.where(deviation > 0, deviation, 1.0)
        filters = tuple(bank.to(sums.device) for bank in _filters(len(mean), seed))
        return cls(filters, mean.float().view(1, -1, 1, 1), deviation.float().view(1, -1, 1, 1))

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Describe images of shape (n, channels, height, width) by features of shape (n, 384)."""
        _check(images)
        if images.shape[1] != self.mean.shape[1]:
            raise ValueError(
                f"images have {images.shape[1]} channels; the filters are for {self.mean.shape[1]}."
            )
        most = PIXELS_ON_CPU if images.device.type == "cpu" else PIXELS
        at_once = max(1, most // (images.shape[2] * images.shape[3]))
        features = torch.cat([self._describe(batch) for batch in torch.split(images, at_once)])
        if not features.isfinite().all():
            raise ValueError("images have values that are NaN or infinite; give finite ones.")
        return features

    def _describe(self, images: Tensor) -> Tensor:
        device = images.device
        maps = (images.float() - self.mean.to(device)) / self.deviation.to(device)
        maps = maps.contiguous(memory_format=torch.channels_last)  # three times as fast on a CPU
        factor = min(maps.shape[2:]) // LARGEST
        if factor > 1:
            maps = F.avg_pool2d(maps, factor)
        found = []
        for level, bank in enumerate(self.filters):
            bank = bank.to(device).contiguous(memory_format=torch.channels_last)
            maps = F.conv2d(maps if level == 0 else F.avg_pool2d(maps, 2), bank, padding=1).relu_()
            pixels = maps.permute(0, 2, 3, 1).flatten(1, 2)
            mean = pixels.mean(1, keepdim=True)
            # Faster than std(), the same numbers
            found += [
                mean[:, 0],
                (pixels - mean).square_().mean(1).sqrt(),
            ]
        return torch.cat(found, 1)


def image_statistics(images: Any, *, seed: int = 0) -> Tensor:
    """Describe images by colours and textures, without a trained network.

    Three layers of 64 random 3×3 filters with a ReLU, each at half the resolution of the one
    before; of every map the mean and the standard deviation over the image. Where something stands
    does not change them much, so they say more of the context than of the object. Images whose
    shorter side has 512 pixels or more are shrunk first.

    Args:
        images: Bytes or numbers, a tensor or an array of shape (n, channels, height, width), of at
            least 4×4 pixels.
        seed: Seed of the filters.

    Returns:
        Shape (n, 384), on the device of the images. Channels are scaled by their mean and deviation
        in all of them.

    Raises:
        ValueError: If the shape is not that of images, or a value is not finite.

    Example:
        >>> image_statistics(torch.rand(5, 3, 16, 16)).shape
        torch.Size([5, 384])
    """
    given = images if isinstance(images, Tensor) else torch.as_tensor(np.asarray(images))
    _check(given)
    return ImageStatistics.fit(torch.split(given, BATCH), seed=seed)(given)


def _check(images: Tensor) -> None:
    if images.dim() != 4 or min(images.shape[2:]) < 2 ** (LEVELS - 1) or 0 in images.shape:
        raise ValueError(
            f"images have shape {tuple(images.shape)}; give (n, channels, height, width) with at"
            " least 4×4 pixels."
        )


def _filters(channels: int, seed: int) -> list[Tensor]:
    """Draw normal weights, every filter of length √2, which keeps the scale of the maps through
    ReLUs.
    """
    generator = torch.Generator().manual_seed(seed)
    banks = [
        torch.randn(WIDTH, inputs, 3, 3, generator=generator) for inputs in (channels, WIDTH, WIDTH)
    ]
    return [2**0.5 * bank / bank.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for bank in banks]
