"""Where something stands in an image: mean colours of a grid, and the cells that give a context
away.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl.contexts._arrays import FloatArray, as_equally_many

GRID = 7
"""Cells in each direction. Coarser ones hide a mark of a tenth of the width; finer ones see
objects."""


def position_colours(images: Any) -> Tensor:
    """Describe images by the mean colour of each cell of a 7×7 grid.

    What stands in one place, such as a watermark in a corner, moves few of these numbers and moves
    them much. :func:`pfdl.image_statistics`, which average over the image, do not see it.

    Args:
        images: Bytes or numbers, a tensor or an array of shape (n, channels, height, width).

    Returns:
        Shape (n, channels · 49): the cells of the first channel row by row, then of the others.

    Raises:
        ValueError: If the shape is not that of images.

    Example:
        >>> position_colours(torch.rand(5, 3, 28, 28)).shape
        torch.Size([5, 147])
    """
    given = images if isinstance(images, Tensor) else torch.as_tensor(np.asarray(images))
    if given.dim() != 4 or 0 in given.shape:
        raise ValueError(
            f"images have shape {tuple(given.shape)}; give (n, channels, height, width)."
        )
    return F.adaptive_avg_pool2d(given.float(), GRID).flatten(1)


def context_map(images: Any, labels: Any, contexts: Any) -> FloatArray:
    """Return how much each cell of an image gives its context away, shape (7, 7), from 0 to 1.

    Of the variance of a cell's colour within classes it is the share between contexts: 0 where the
    cell looks the same in every context, 1 where the context alone decides its colour.

    Args:
        images: Bytes or numbers, a tensor or an array of shape (n, channels, height, width).
        labels: The classes, shape (n,).
        contexts: The contexts, shape (n,), such as :func:`pfdl.infer_contexts` returns.

    Returns:
        The share of each cell, the first row at the top.

    Example:
        >>> images, contexts = torch.rand(200, 3, 28, 28), torch.arange(200) % 2
        >>> images[contexts == 1, :, -4:, -4:] = 1.0  # a mark in the corner at the right below
        >>> divmod(int(context_map(images, [0] * 200, contexts).argmax()), 7)
        (6, 6)
    """
    y, context = as_equally_many(labels=labels, contexts=contexts)
    colours = position_colours(images).double().numpy()
    if len(colours) != len(y):
        raise ValueError(
            f"there are {len(colours)} images and {len(y)} labels; give one label per image."
        )
    group = y * (int(context.max()) + 1) + context
    within_class = _squares(colours, y)
    within_group = _squares(colours, group)
    cells = np.stack([within_class, within_group]).reshape(2, -1, GRID, GRID).sum(axis=1)
    share = 1.0 - cells[1] / np.where(cells[0] > 0, cells[0], 1.0)
    return np.where(cells[0] > 0, share, 0.0).clip(0.0, 1.0)


def _squares(values: FloatArray, group: Any) -> FloatArray:
    """Return the sum of squares about the means of groups, of each column."""
    number = np.unique(group, return_inverse=True)[1].reshape(-1)
    members = np.eye(int(number.max()) + 1)[number]
    means = members.T @ values / members.sum(axis=0)[:, None]
    return np.asarray(((values - means[number]) ** 2).sum(axis=0))
