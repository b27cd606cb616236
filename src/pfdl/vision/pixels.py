"""From bytes to what a network sees."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels, because pretrained weights expect them."""


def normalise(images: Tensor) -> Tensor:
    """Scale bytes, shape (n, 3, h, w), to about mean 0 and deviation 1; other dtypes count as
    scaled already.
    """
    if images.dtype != torch.uint8:
        return images
    mean, std = _send(torch.tensor([MEAN, STD]), images.device).view(2, 3, 1, 1)
    return images.float().div_(255).sub_(mean).div_(std)


def mirror_and_shift(images: Tensor) -> Tensor:
    """Mirror half of the images and shift each by up to an eighth of its size; what is missing is
    reflected.

    Args:
        images: Shape (n, channels, h, w).

    Returns:
        The same shape.
    """
    count, channels, height, width = images.shape
    rows, columns = (_shifted(count, size) for size in (height, width))
    columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    rows, columns = torch.split(
        _send(torch.cat([rows, columns], 1), images.device), [height, width], 1
    )
    pixels = (rows[:, None, :, None] * width + columns[:, None, None, :]).flatten(2)
    return images.flatten(2).gather(2, pixels.expand(-1, channels, -1)).view_as(images)


def crop_and_colour(images: Tensor) -> Tensor:
    """Cut a part of half to all of each image, mirror half of them, and change their colours a
    little.

    Args:
        images: Bytes, shape (n, 3, h, w).

    Returns:
        The same shape.
    """
    from torchvision.transforms import v2  # type: ignore[import-untyped]

    augment = v2.Compose(
        [
            v2.RandomResizedCrop(images.shape[-2:], scale=(0.5, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
        ]
    )
    return torch.stack([augment(image) for image in images])


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "flip-shift": mirror_and_shift,
    "crops": crop_and_colour,
}


def _shifted(count: int, size: int) -> Tensor:
    """Return for each of ``count`` images the positions 0 to size − 1 after a shift, folded back at
    both ends.
    """
    reach = size // 8
    positions = torch.arange(size) + torch.randint(-reach, reach + 1, (count, 1))
    return (size - 1) - ((size - 1) - positions.abs()).abs()


def _send(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy a few numbers to a device; nothing waits for a GPU, which may still be at work on the
    step before.
    """
    return (
        numbers.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else numbers.to(device)
    )
