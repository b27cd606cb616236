"""What the study of images compares: methods, and variants of the published penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HIDDEN, ONE, INFERRED, KNOWN = "hidden", "one", "inferred", "known"
"""What an objective may be told of contexts: nothing; that all samples share one; groups found by
:func:`pfdl.infer_contexts`; or the truth, which makes it an oracle."""


@dataclass(frozen=True)
class Entry:
    """One method or variant.

    Args:
        title: Its name in tables.
        objective: See :func:`pfdl.make_objective`.
        settings: Likewise.
        environments: What it is told of contexts: ``HIDDEN``, ``ONE``, ``INFERRED`` or ``KNOWN``.
        batch_size: See :class:`pfdl.experiments.study.training.TrainingSettings`.
        layer: Likewise.
        class_centred: Likewise.
        width: Width of the embedding, by a layer in front of the classifier; None leaves the backbone as it is.
    """

    title: str
    objective: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environments: str = HIDDEN
    batch_size: int = 64
    layer: int = -1
    class_centred: bool = False
    width: int | None = None


def _published(title: str, *, entry: Mapping[str, Any] | None = None, **changes: Any) -> Entry:
    """PFDL with changes; ``entry`` is what changes beside it."""
    return Entry(title, "pfdl", {"pfdl": changes} if changes else {}, **(entry or {}))


METHODS: dict[str, Entry] = {
    "erm": Entry("ERM", "erm"),
    "erm-classes": Entry("ERM, classes weighted equally", "balance", {"balance": {"equal_classes": True}}, ONE),
    "pfdl": Entry("PFDL", "pfdl"),
    "dwr": Entry("DWR", "dwr"),
    "cnbb": Entry("CNBB's weights", "cnbb"),
    "stablenet": Entry("StableNet", "stablenet"),
    "irm": Entry("IRM, inferred contexts", "irm", {"irm": {"weight": 0.1}}, INFERRED),
    "groupdro": Entry("GroupDRO, inferred contexts", "groupdro", {}, INFERRED),
    "balance": Entry("balance, inferred contexts", "balance", {}, INFERRED),
    "balance-classes": Entry(
        "balance, inferred contexts, classes weighted equally too",
        "balance",
        {"balance": {"equal_classes": True}},
        INFERRED,
    ),
    "balance-known": Entry("balance, true contexts (oracle)", "balance", {}, KNOWN),
}

FACTORS: dict[str, Entry] = {
    "weight-0.1": _published("weight 0.1", weight=0.1),
    "weight-10": _published("weight 10", weight=10.0),
    "warmup": _published("weight rises over 300 steps", warmup=300),
    "indexed": _published("g knows its index", sharing="indexed"),
    "deep": _published("g with two hidden layers", sharing="indexed", hidden=[256, 256]),
    "five-steps": _published("five g-steps", sharing="indexed", fit_steps=5),
    "centred": _published("centred", sharing="indexed", center="batch"),
    "class-centred": _published("centred by class", sharing="indexed", entry={"class_centred": True}),
    "pairwise": _published("pairwise form", sharing="indexed", form="pairwise"),
    "pairwise-centred": _published("pairwise form, centred", sharing="indexed", form="pairwise", center="batch"),
    "batch-16": _published("batches of 16", entry={"batch_size": 16}),
    "batch-256": _published("batches of 256", entry={"batch_size": 256}),
    "width-64": _published("64 features, by a hidden layer", entry={"width": 64}),
    "width-64-before": _published("the features before that layer", entry={"width": 64, "layer": -2}),
    "erm-batch-16": Entry("ERM, batches of 16", "erm", batch_size=16),
    "erm-batch-256": Entry("ERM, batches of 256", "erm", batch_size=256),
    "erm-width-64": Entry("ERM, 64 features", "erm", width=64),
    "balance-batch-16": Entry("balance, inferred contexts, batches of 16", "balance", {}, INFERRED, batch_size=16),
}

BASELINES = {
    "balance-classes": "erm-classes",
    "batch-16": "erm-batch-16",
    "batch-256": "erm-batch-256",
    "balance-batch-16": "erm-batch-16",
    "width-64": "erm-width-64",
    "width-64-before": "erm-width-64",
}
"""Plain training to compare with, where it is not ``erm``."""

ENTRIES = {**METHODS, **FACTORS}
