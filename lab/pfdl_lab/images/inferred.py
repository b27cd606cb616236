"""Contexts for the rows, inferred once for each data set and seed, however many rows use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from pfdl.contexts import find_by_jtt, find_contexts
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl_lab.images.data import Split
from pfdl_lab.images.rows import find_row

INFERRED: dict[str, dict[str, Any]] = {
    "inferred": {"method": "auto"},
    "errors": {
        "method": "early",
        "confirmation": 0.0,
    },  # the classes that a linear probe predicts, unchecked
}
"""How contexts are inferred, by what a row says of them."""


def kinds_needed(rows: Iterable[str], *, judging: bool) -> list[str]:
    """Return the ways of ``INFERRED`` in which contexts must be inferred for some rows.

    Args:
        rows: Keys of the rows.
        judging: Whether inferred contexts also judge epochs, of all rows but the oracles.
    """
    told = {find_row(row).contexts for row in rows}
    if judging and told != {"known"}:
        told.add("inferred")
    return [kind for kind in INFERRED if kind in told]


def infer(split: Split, kind: str, seed: int) -> list[dict[str, Any]]:
    """Infer the contexts of the training samples of a split and, after them, of its validation
    samples.

    Returns:
        One line: ``contexts``, their ``number``, the ``method``, and the ``sentence`` that says why
        they are believed.

    Raises:
        ValueError: If errors are asked for and the probe never predicts some class.
    """
    labels = torch.cat([split.train.labels, split.validation.labels])
    found = find_contexts(split.context_features(), labels, seed=seed, **INFERRED[kind])
    if kind == "errors":
        # Contexts are numbered in their order, which is that of the classes only if all of them
        # occur.
        if found.number != split.classes:
            raise ValueError(
                f"a linear probe predicts {found.number} of {split.classes} classes, so its errors"
                " are unknown; leave out the row jtt."
            )
        errors = find_by_jtt(found.contexts, labels)
        found = replace(found, contexts=errors.contexts, method="jtt", sentence=errors.sentence)
    return [{**found.to_dict(), "contexts": found.contexts.tolist()}]


def contexts_for(told: str, split: Split, find: Callable[[str], Tensor]) -> tuple[Tensor, Tensor]:
    """Return what may be known of the contexts of training and of validation samples, shapes (n,)
    and (m,).

    Args:
        told: What a row says of contexts, see :class:`pfdl_lab.images.rows.Row`.
        split: The samples.
        find: Gives the contexts that were inferred in one of the ways of ``INFERRED``.
    """
    train = split.train
    validation = split.validation
    if told in INFERRED:
        found = find(told)
        return found[: len(train.labels)], found[len(train.labels) :]
    if told == "known":
        return train.contexts, validation.contexts
    if told == "halves":
        return _halves(train.labels), _halves(validation.labels)
    value = 0 if told == "one" else HIDDEN_CONTEXT
    return torch.full_like(train.labels, value), torch.full_like(validation.labels, value)


def _halves(labels: Tensor) -> Tensor:
    """Return contexts that say nothing: of each class every other sample is in 1, the rest in 0."""
    of_class = pd.Series(labels.numpy())
    return torch.from_numpy(1 - of_class.groupby(of_class).cumcount().to_numpy() % 2)
