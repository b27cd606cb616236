"""What the study of images compares: methods, and variants of the published penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pfdl._internal.validation import check_choice
from pfdl.experiments.objectives import needs_contexts
from pfdl.experiments.rivals import ACTING
from pfdl.objectives import list_objectives


@dataclass(frozen=True)
class StudyRow:
    """One method or variant.

    Args:
        title: Its name in tables.
        objective: A name for :func:`pfdl.make_objective`.
        settings: The settings of the objective's parts, by their names.
        contexts: What the objective may know of contexts: ``"hidden"`` (nothing), ``"one"`` (that all samples share
            one), ``"inferred"`` (what :func:`pfdl.infer_contexts` finds), ``"errors"`` (what a short training gets
            wrong, unchecked, after JTT) or ``"known"`` (the truth: an oracle).
        sampler: ``"shuffle"``; or ``"groups"``, which draws all groups equally often.
        refit: Whether the last layer is refitted on balanced groups afterwards (DFR), on the training samples.
        baseline: Key of the plain training to compare with.
        batch_size: Samples per step.
        layer: The linear layer whose input the objective sees as features, see
            :class:`pfdl.experiments.training.TrainingSettings`.
        class_centred: Whether it sees them with every class of a batch at its own mean.
        width: Width of the embedding, by a layer in front of the classifier; None leaves the backbone as it is.
    """

    title: str
    objective: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contexts: str = "hidden"
    baseline: str = "erm"
    sampler: str = "shuffle"
    refit: bool = False
    batch_size: int = 64
    layer: int = -1
    class_centred: bool = False
    width: int | None = None


def _pfdl(title: str, *, row: Mapping[str, Any] | None = None, **changes: Any) -> StudyRow:
    """Return PFDL with changes; ``row`` is what else changes."""
    return StudyRow(title, "pfdl", {"pfdl": changes} if changes else {}, **(row or {}))


ORACLE = "-known"
"""Ends the key of a row that has the true contexts in the place of inferred ones."""

_EQUAL = {"balance": {"equal_classes": True}}
METHODS: dict[str, StudyRow] = {
    "erm": StudyRow("ERM", "erm"),
    "erm-classes": StudyRow("ERM, classes weighted equally", "balance", _EQUAL, "one"),
    "pfdl": StudyRow("PFDL", "pfdl"),
    "level": StudyRow("level penalty, no g", "level"),
    "dwr": StudyRow("DWR", "dwr"),
    "cnbb": StudyRow("CNBB's weights", "cnbb"),
    "stablenet": StudyRow("StableNet", "stablenet"),
    "irm": StudyRow("IRM, inferred contexts", "irm", {"irm": {"weight": 0.1}}, "inferred"),
    "groupdro": StudyRow("GroupDRO, class × inferred context", "groupdro", contexts="inferred"),
    "groupdro-known": StudyRow("GroupDRO, class × true context (oracle)", "groupdro", contexts="known"),
    "balance": StudyRow("balance, inferred contexts", "balance", contexts="inferred"),
    "balance-classes": StudyRow(
        "balance, inferred contexts, classes weighted equally too", "balance", _EQUAL, "inferred", "erm-classes"
    ),
    "balance-known": StudyRow("balance, true contexts (oracle)", "balance", contexts="known"),
    "sampler": StudyRow("sampler, inferred contexts", "erm", contexts="inferred", sampler="groups"),
    "sampler-known": StudyRow("sampler, true contexts (oracle)", "erm", contexts="known", sampler="groups"),
    "jtt": StudyRow("errors of a linear probe (after JTT), sampler", "erm", contexts="errors", sampler="groups"),
    "dfr": StudyRow("DFR: last layer refitted, inferred contexts", "erm", contexts="inferred", refit=True),
    "dfr-known": StudyRow("DFR: last layer refitted, true contexts (oracle)", "erm", contexts="known", refit=True),
}

_BATCH_16: dict[str, Any] = {"batch_size": 16, "baseline": "erm-batch-16"}
_BATCH_256: dict[str, Any] = {"batch_size": 256, "baseline": "erm-batch-256"}
_WIDTH_64 = {"width": 64, "baseline": "erm-width-64"}
FACTORS: dict[str, StudyRow] = {
    "weight-0.1": _pfdl("weight 0.1", weight=0.1),
    "weight-10": _pfdl("weight 10", weight=10.0),
    "warmup": _pfdl("weight rises over 300 steps", warmup=300),
    "indexed": _pfdl("indexed g", sharing="indexed"),
    "deep": _pfdl("indexed g with two hidden layers", sharing="indexed", hidden=[256, 256]),
    "five-steps": _pfdl("indexed g, five g-steps", sharing="indexed", fit_steps=5),
    "centred": _pfdl("indexed g, centred", sharing="indexed", center="batch"),
    "class-centred": _pfdl("indexed g, centred by class", sharing="indexed", row={"class_centred": True}),
    "pairwise": _pfdl("indexed g, pairwise form", sharing="indexed", form="pairwise"),
    "pairwise-centred": _pfdl("indexed g, pairwise form, centred", sharing="indexed", form="pairwise", center="batch"),
    "batch-16": _pfdl("batches of 16", row=_BATCH_16),
    "batch-256": _pfdl("batches of 256", row=_BATCH_256),
    "width-64": _pfdl("64 features, by a hidden layer", row=_WIDTH_64),
    "width-64-before": _pfdl("the features before that layer", row={**_WIDTH_64, "layer": -2}),
    "erm-batch-16": StudyRow("ERM, batches of 16", "erm", batch_size=16),
    "erm-batch-256": StudyRow("ERM, batches of 256", "erm", batch_size=256),
    "erm-width-64": StudyRow("ERM, 64 features", "erm", width=64),
    "balance-batch-16": StudyRow(
        "balance, inferred contexts, batches of 16",
        "balance",
        contexts="inferred",
        baseline="erm-batch-16",
        batch_size=16,
    ),
}

RIVALS: dict[str, StudyRow] = {key: StudyRow(*rival) for key, rival in ACTING.items()}
RIVALS |= {
    f"{key}-batch-256": replace(row, title=f"{row.title}, batches of 256", **_BATCH_256)
    for key, row in {**METHODS, **RIVALS}.items()
    if key in ("dwr", "dwr-0.05", "cnbb", "cnbb-4", "stablenet", "stablenet-0.7")
}

EARLIER: dict[str, StudyRow] = {
    "groupdro-contexts": StudyRow(
        "GroupDRO, groups = inferred contexts (not class × context)", "groupdro", contexts="inferred"
    )
}
"""Rows of published results that this version cannot run."""

ROWS = {**METHODS, **RIVALS, **FACTORS}


def find_row(key: str, *, measured: bool = False) -> StudyRow:
    """Return the row of a key: one of the tables above, or any objective that has a name.

    Args:
        key: Such as ``"pfdl"`` or ``"weight-10"``; or the name of a registered objective, or several joined by ``+``.
            Such a row has the objective's own settings, and the contexts are inferred if it reads contexts.
        measured: Whether a row of published results will do that this version cannot run.

    Raises:
        ValueError: If there is no such row or objective.
    """
    known = {**ROWS, **EARLIER} if measured else ROWS
    if key in known:
        return known[key]
    names = {info.name for info in list_objectives()}
    if not set(key.split("+")) <= names:
        check_choice("the row", key, sorted({*known, *names}))
    return StudyRow(key, key, contexts="inferred" if needs_contexts(key) else "hidden")
