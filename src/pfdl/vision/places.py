"""Where in the image contexts are seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch.nn import functional as F

from pfdl.data.context_images import ContextImages

GRID = 7
"""Cells on a side of the map."""

LEAST_IMAGES = 5
"""Classes with fewer images in two contexts say nothing of where these differ."""


def map_contexts(
    images: ContextImages, labels: Sequence[str], contexts: Sequence[str]
) -> NDArray[np.float64] | None:
    """Return how far the colours of each part of an image differ between the contexts of a class.

    It is the share of the variance of a cell's mean colour within a class that its contexts
    explain, on average over the classes.

    Args:
        images: The images.
        labels: The class of each.
        contexts: The context of each.

    Returns:
        Shares from 0 to 1, shape (7, 7); None where no class stands in two contexts.
    """
    cells = np.stack(
        [
            F.adaptive_avg_pool2d(images[number][0].float(), GRID).numpy()
            for number in range(len(images))
        ]
    )
    classes, places = np.array(labels), np.array(contexts)
    shares = []
    for label in np.unique(classes):
        of_class = classes == label
        names, counts = np.unique(places[of_class], return_counts=True)
        if np.sort(counts)[-2:].min() >= LEAST_IMAGES and len(names) > 1:
            shares.append(_explained(cells[of_class], places[of_class]))
    return np.mean(shares, axis=0) if shares else None


def _explained(cells: NDArray[np.float32], places: NDArray[np.str_]) -> NDArray[np.float64]:
    """Return the share of each cell's variance that lies between contexts, all channels
    together.
    """
    mean = cells.mean(axis=0)
    total = ((cells - mean) ** 2).sum(axis=0)
    between = np.zeros_like(total)
    for place in np.unique(places):
        there = cells[places == place]
        between += len(there) * (there.mean(axis=0) - mean) ** 2
    return np.asarray(between.sum(axis=0) / np.maximum(total.sum(axis=0), 1e-12), dtype=np.float64)
