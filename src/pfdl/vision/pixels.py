"""From bytes to what a network sees."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels, because pretrained weights expect them."""


REACH = 8
"""Images are shifted by up to an eighth of their size."""


def normalise(images: Tensor) -> Tensor:
    """Scale bytes, shape (n, 3, h, w), to about mean 0 and deviation 1; other dtypes count as
    scaled already.
    """
    if images.dtype != torch.uint8:
        return images
    mean, std = _mean_and_std(images.device)
    return images.float().div_(255).sub_(mean).div_(std)


@cache
def _mean_and_std(device: torch.device) -> Tensor:
    """Return mean and deviation, shape (2, 3, 1, 1); each device has them once, so that a recorded
    step finds them where they were.
    """
    with torch.inference_mode(False):
        return torch.tensor([MEAN, STD]).view(2, 3, 1, 1).to(device)


def draw_shifts(images: Tensor) -> Tensor:
    """Draw how each image is shifted and whether it is mirrored, for :func:`mirror_and_shift`.

    The CPU draws, so that a training sees the same on every device.

    Returns:
        Rows down, columns to the right, and 1 for mirrored, shape (n, 3), on the CPU.
    """
    count, _, height, width = images.shape
    down = _draw_shift(count, height)
    right = _draw_shift(count, width)
    is_mirrored = torch.rand(count, 1) < 0.5
    return torch.cat([down, right, is_mirrored.long()], 1)


def mirror_and_shift(images: Tensor, shifts: Tensor | None = None) -> Tensor:
    """Mirror half of the images and shift each by up to an eighth of its size; what is missing is
    reflected.

    Args:
        images: Shape (n, channels, h, w).
        shifts: What :func:`draw_shifts` returned; drawn here by default.

    Returns:
        The same shape.
    """
    _, channels, height, width = images.shape
    if shifts is None:
        shifts = to_device(draw_shifts(images), images.device)
    down, right, is_mirrored = torch.split(shifts, 1, 1)
    rows = _reflected(torch.arange(height, device=images.device) + down, height)
    columns = _reflected(torch.arange(width, device=images.device) + right, width)
    columns = torch.where(is_mirrored > 0, columns.flip(1), columns)
    pixels = rows[:, :, None] * width + columns[:, None, :]  # shape (n, h, w)
    of_each_channel = pixels.flatten(1)[:, None].expand(-1, channels, -1)
    shifted = images.flatten(2).gather(2, of_each_channel)
    return shifted.view_as(images)


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


def _draw_shift(count: int, size: int) -> Tensor:
    reach = size // REACH
    return torch.randint(-reach, reach + 1, (count, 1))


def _reflected(positions: Tensor, size: int) -> Tensor:
    """Fold positions beyond either end back into 0 to size − 1."""
    last = size - 1
    return last - (last - positions.abs()).abs()


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy a few numbers to a device; nothing waits for a GPU, which may still be at work on the
    step before.
    """
    if device.type != "cuda":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)
