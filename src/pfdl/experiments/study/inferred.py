"""Contexts for the rows of the study, inferred once for each data set and seed, however many rows use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfdl.contexts import find_contexts
from pfdl.experiments.grid import stored_rows
from pfdl.experiments.study.data import StudyData
from pfdl.experiments.study.rows import find_row
from pfdl.experiments.workers import Task

INFERRED: dict[str, dict[str, Any]] = {
    "inferred": {"method": "auto"},
    "errors": {"method": "errors", "confirmation": 0.0},  # unchecked, as JTT takes its own
}
"""How contexts are inferred, by what a row says of them."""


def inference_tasks(place: StudyData, rows: Iterable[str], seed: int, *, judging: bool) -> list[Task]:
    """Return the arguments of :func:`infer_task` that rows of the study need for a data set and seed.

    Args:
        place: The data set.
        rows: Keys of the rows.
        seed: Of the split.
        judging: Whether inferred contexts also judge epochs, of all rows but the oracles.
    """
    kinds = {find_row(row).contexts for row in rows}
    if judging and kinds != {"known"}:
        kinds.add("inferred")
    return [_task(place, kind, seed) for kind in INFERRED if kind in kinds]


def infer_task(contexts: str, seed: int, *, images: Mapping[StudyData, Path], **dataset: Any) -> list[dict[str, Any]]:
    """Infer the contexts of the training samples of one split.

    Args:
        contexts: ``"inferred"`` or ``"errors"``, as a row says.
        seed: Of the split and of what inference draws.
        images: For each data set of images, where they are stored.
        **dataset: What :class:`pfdl.experiments.study.data.StudyData` takes.

    Returns:
        One line: ``contexts``, their ``number``, the ``method``, and the ``sentence`` that says why they are believed.
    """
    place = StudyData(**dataset)
    split = place.split(seed, images.get(place))
    found = find_contexts(split.context_features(), split.train.labels, seed=seed, **INFERRED[contexts])
    return [{**found.to_dict(), "contexts": found.contexts.tolist()}]


def inferred_contexts(
    place: StudyData, contexts: str, seed: int, images: Mapping[StudyData, Path], folder: Path | None
) -> Tensor:
    """Return the contexts of a split, shape (n,): those that a folder holds, or else inferred here."""
    task = _task(place, contexts, seed)
    stored = None if folder is None else stored_rows(task, folder)
    return torch.tensor((stored or infer_task(images=images, **task))[0]["contexts"])


def _task(place: StudyData, contexts: str, seed: int) -> dict[str, Any]:
    return {**place.task, "contexts": contexts, "seed": seed}
