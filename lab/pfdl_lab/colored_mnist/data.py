"""The environments of Colored-MNIST for all restarts side by side, and their inferred contexts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pfdl.contexts.inference import infer_contexts
from pfdl.contexts.statistics import image_statistics
from pfdl_lab.colored_mnist.environments import ColoredMNIST, Environment
from pfdl_lab.digits import DigitSource
from pfdl_lab.grid import stored_rows


class StackedColoredMNIST:
    """The environments of all restarts, stacked: images (R, n, 2, 196), labels (R, n), and inferred
    contexts (R, n).

    Args:
        source: Grey digits.
        seeds: Of the restarts.
        max_train: Rows of the two training environments together; None for all.
        device: Where to put the tensors.
        contexts: Folder with what :func:`infer_task` found; None where no row needs it.
    """

    def __init__(
        self,
        source: DigitSource,
        seeds: Sequence[int],
        max_train: int | None,
        device: str,
        contexts: Path | None = None,
    ) -> None:
        self.digits = source.name
        self.device = device
        self.seeds = seeds
        restarts = [ColoredMNIST(source, seed=seed, max_train=max_train) for seed in seeds]
        by_environment = zip(*(data.train for data in restarts), strict=True)
        held_out = zip(*(data.held_out for data in restarts), strict=True)
        self.train = [self._stack(list(one)) for one in by_environment]
        self.held_out = [self._stack(list(one)) for one in held_out]
        self.test = self._stack([data.test for data in restarts])
        self.has_contexts = contexts is not None
        if contexts is not None:
            stored = [
                stored_rows(task, contexts) for task in context_tasks(source.name, seeds, max_train)
            ]
            found = torch.tensor([lines[0]["contexts"] for lines in stored if lines], device=device)
            rows = self.train[0][1].shape[1] + self.train[1][1].shape[1]
            self.train_contexts = found[:, :rows]
            self.held_out_contexts = found[:, rows:]

    def _stack(self, environments: Sequence[Environment]) -> tuple[Tensor, Tensor]:
        images = torch.stack([environment.images for environment in environments]).flatten(3)
        return images.to(self.device), torch.stack(
            [environment.labels for environment in environments]
        ).to(self.device)


def context_tasks(digits: str, seeds: Sequence[int], max_train: int | None) -> list[dict[str, Any]]:
    """Return one task for :func:`infer_task` per restart; the name of the digits tells results
    apart.
    """
    return [{"digits": digits, "seed": seed, "max_train": max_train} for seed in seeds]


def infer_task(
    digits: str, seed: int, max_train: int | None, *, folder: str | None
) -> list[dict[str, Any]]:
    """Infer the contexts of the training rows and, after them, the held-out rows of a restart; not
    of test rows.
    """
    data = ColoredMNIST(folder, seed=seed, max_train=max_train)
    environments = (*data.train, *data.held_out)
    images = torch.cat([environment.images for environment in environments])
    labels = torch.cat([environment.labels for environment in environments])
    return [
        {"contexts": infer_contexts(image_statistics(images), labels.long(), seed=seed).tolist()}
    ]


def draw_environments(data: ColoredMNIST, columns: int = 12, scale: int = 3) -> bytes:
    """Return a PNG of some coloured digits of the three environments, one row each."""
    rows = []
    for environment in (*data.train, data.test):
        two = environment.images[:columns].numpy()
        coloured = np.concatenate([two, np.zeros_like(two[:, :1])], axis=1).transpose(0, 2, 3, 1)
        framed = np.pad(coloured, ((0, 0), (1, 1), (0, 1), (0, 0)), constant_values=1)
        rows.append(np.concatenate(framed, axis=1))
    pixels = np.rint(255 * np.concatenate(rows)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels.repeat(scale, axis=0).repeat(scale, axis=1)).save(
        stream, format="PNG", optimize=True
    )
    return stream.getvalue()
