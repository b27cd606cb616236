"""What the experiment on images compares: the paper's rows, controls that test a claim, rivals, and
ways to balance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from typing import Any, Literal

import torch

from pfdl._internal.validation import check_choice
from pfdl.data.proportions import TEST_RATIOS
from pfdl.objectives import list_objectives, make_objective
from pfdl_lab.controls import LEVEL_MATCHED, MEAN

RATIOS = TEST_RATIOS
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Row:
    """One way to train.

    Args:
        title: Its name in tables.
        objective: A name for :func:`pfdl.make_objective`.
        settings: The settings of the objective's parts, by their names.
        contexts: What the objective may know of contexts: ``"hidden"`` (nothing), ``"one"`` (that
            all samples share one), ``"inferred"`` (what :func:`pfdl.infer_contexts` finds),
            ``"errors"`` (what a short training gets wrong, unchecked, as in JTT), ``"halves"``
            (every second sample of a class, which says nothing: to balance them is to balance
            classes) or ``"known"`` (the truth: an oracle).
        baseline: Key of the plain training to compare with.
        sampler: ``"shuffle"``; ``"groups"``, which draws all groups equally often; or
            ``"classes"``.
        refit: On which samples the last layer is refitted afterwards, with balanced groups (DFR):
            ``"train"``, or ``"held-out"``, those of the validation share.
        backbone: A network of its own; None for that of the experiment.
        image_size: Height and width of its images; None for those of the experiment.
        batch_size: Samples per step; None for those of the experiment.
        learning_rate: Learning rate of SGD at the start; None for that of the experiment.
        weight_decay: Weight decay of SGD.
        until: Share of the epochs after which a control's penalty is switched off.
        layer: The linear layer whose input the objective sees as features: -1 for the last.
        class_centred: Whether it sees them with every class of a batch at its own mean.
        width: Width of the embedding, by a layer in front of the classifier; None leaves the
            backbone as it is.
        paper: The paper's accuracies in percent on NICO at ``RATIOS``, None where it prints none.
    """

    title: str
    objective: str = "erm"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contexts: str = "hidden"
    baseline: str = "erm"
    sampler: Literal["shuffle", "groups", "classes"] = "shuffle"
    refit: Literal["no", "train", "held-out"] = "no"
    backbone: str | None = None
    image_size: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float = WEIGHT_DECAY
    until: float = 1.0
    layer: int = -1
    class_centred: bool = False
    width: int | None = None
    paper: tuple[float | None, ...] | None = None


def _pfdl(title: str, *, row: Mapping[str, Any] | None = None, **changes: Any) -> Row:
    """Return PFDL with changed settings; ``row`` is what else changes."""
    return Row(title, "pfdl", {"pfdl": changes} if changes else {}, **(row or {}))


def _matched(
    title: str, objective: str = "covariance", sharing: str = "strict", **changes: Any
) -> Row:
    """Return a part of the penalty, or a rival of it, that is as strong as PFDL at every step."""
    return Row(title, objective, {objective: {"sharing": sharing}}, **changes)


# The size that this network was made for
_CN: dict[str, Any] = {
    "backbone": "cn",
    "image_size": 64,
}
# Commented out in the paper's source
_ERM_PAPER = (
    39.79,
    39.98,
    40.54,
    42.41,
    43.21,
    46.67,
    44.73,
)
# On which network, the paper does not say
_DWR_PAPER = (
    35.66,
    35.61,
    37.29,
    40.37,
    41.81,
    43.08,
    43.72,
)
_PFDL_PAPER = (41.31, 41.41, 43.70, 47.46, 46.80, 49.29, 50.87)
PAPER: dict[str, Row] = {
    "dwr-published": Row(
        "DWR per training sample, published solver", "dwr-published", paper=_DWR_PAPER
    ),
    "cn": Row("CN", **_CN, baseline="cn", paper=(37.17, None, 37.80, 41.46, 42.50, 43.23, None)),
    "cn-bn": Row(
        "CN+BN",
        **{**_CN, "backbone": "cn-bn"},
        baseline="cn",
        paper=(38.70, None, 39.60, 41.64, 42.00, 43.85, None),
    ),
    "cn-cnbb": Row(
        "CNBB", "cnbb", **_CN, baseline="cn", paper=(39.06, None, 39.60, 42.12, 43.33, 44.15, None)
    ),
    "erm": Row("ERM", paper=_ERM_PAPER),
    "pfdl": Row("PFDL", "pfdl", paper=_PFDL_PAPER),
}
"""The rows of the paper's Table II, in its order; ERM is its ResNet-50."""

CONTROLS: dict[str, Row] = {
    "placebo": _pfdl("Placebo: PFDL with λ = 0", weight=0.0),
    "covariance": _matched("Decorrelation, as strong as PFDL"),
    "level-matched": _matched("Level penalty, as strong as PFDL", LEVEL_MATCHED),
    "level": Row("Level penalty (no g)", "level"),
    "mean": Row("Mean of the other features instead of g", MEAN),
    "pfdl-indexed": _pfdl("PFDL, indexed g", sharing="indexed"),
    "pfdl-centred": _pfdl("PFDL, centred", center="batch"),
    "pfdl-sgd": _pfdl("PFDL, g by SGD", optimizer=partial(torch.optim.SGD, lr=0.01)),
    "covariance-indexed": _matched(
        "Decorrelation, as strong as PFDL, indexed g", sharing="indexed"
    ),
    "covariance-third": _matched(
        "Decorrelation, as strong as PFDL, in the first third of the epochs", until=1 / 3
    ),
    "standardised": _pfdl("PFDL on standardised features", standardize=True),
    "standardised-indexed": _pfdl(
        "PFDL on standardised features, indexed g", standardize=True, sharing="indexed"
    ),
    "weight-decay": Row("ERM, weight decay 5e-4", weight_decay=5e-4),
}
"""What the penalty does, which part of it does it, and whether a plain regulariser does it too.
Decorrelation is the covariance part of L_decorr alone."""

DECLARED = ("erm", "placebo", "pfdl", "covariance", "level-matched")
"""The rows of the page of the two phases."""


def _grid(row: Row, decay: float, rate: float) -> Row:
    changed: dict[str, Any] = {
        "weight_decay": decay,
        "learning_rate": rate,
        "baseline": f"erm-wd-{decay:g}-lr-{rate:g}",
    }
    return replace(
        row,
        title=f"{row.title}, weight decay {decay:g}, learning rate {rate:g}",
        paper=None,
        **changed,
    )


_VARIED = {"erm": PAPER["erm"], "pfdl": PAPER["pfdl"], "covariance": CONTROLS["covariance"]}
GRID: dict[str, Row] = {
    f"{key}-wd-{decay:g}-lr-{rate:g}": _grid(_VARIED[key], decay, rate)
    for key, decay, rate in product(_VARIED, (1e-4, 5e-4, 1e-3), (0.003, 0.01, 0.03))
}
"""ERM, PFDL and decorrelation at nine settings of SGD, each compared with ERM at the same."""


_EQUAL = {"balance": {"equal_classes": True}}
BALANCING: dict[str, Row] = {
    "erm-classes": Row("ERM, classes weighted equally", "balance", _EQUAL, "one"),
    "sampler-classes": Row("ERM, classes drawn equally often", sampler="classes"),
    "irm": Row("IRM, inferred contexts", "irm", {"irm": {"weight": 0.1}}, "inferred"),
    "groupdro": Row("GroupDRO, class × inferred context", "groupdro", contexts="inferred"),
    "groupdro-known": Row("GroupDRO, class × true context (oracle)", "groupdro", contexts="known"),
    "balance": Row("balance, inferred contexts", "balance", contexts="inferred"),
    "balance-classes": Row(
        "balance, inferred contexts, classes weighted equally too",
        "balance",
        _EQUAL,
        "inferred",
        "erm-classes",
    ),
    "balance-known": Row("balance, true contexts (oracle)", "balance", contexts="known"),
    "sampler": Row("sampler, inferred contexts", contexts="inferred", sampler="groups"),
    "sampler-known": Row("sampler, true contexts (oracle)", contexts="known", sampler="groups"),
    "jtt": Row(
        "errors of a linear probe (after JTT), sampler", contexts="errors", sampler="groups"
    ),
    "dfr": Row("DFR: last layer refitted, inferred contexts", contexts="inferred", refit="train"),
    "dfr-known": Row(
        "DFR: last layer refitted, true contexts (oracle)", contexts="known", refit="train"
    ),
    "dfr-held-out": Row(
        "DFR on held-out images, inferred contexts", contexts="inferred", refit="held-out"
    ),
    "dfr-held-out-known": Row(
        "DFR on held-out images, true contexts (oracle)", contexts="known", refit="held-out"
    ),
    "dfr-held-out-classes": Row(
        "refit on held-out images, balanced classes", contexts="halves", refit="held-out"
    ),
}
"""Ways to make classes or groups count equally."""

_BATCH_16: dict[str, Any] = {"batch_size": 16, "baseline": "erm-batch-16"}
_BATCH_256: dict[str, Any] = {"batch_size": 256, "baseline": "erm-batch-256"}
_WIDTH_64: dict[str, Any] = {"width": 64, "baseline": "erm-width-64"}
FACTORS: dict[str, Row] = {
    "weight-0.1": _pfdl("PFDL, weight 0.1", weight=0.1),
    "weight-10": _pfdl("PFDL, weight 10", weight=10.0),
    "warmup": _pfdl("PFDL, weight rises over 300 steps", warmup=300),
    "indexed": _pfdl("PFDL, indexed g", sharing="indexed"),
    "deep": _pfdl("PFDL, indexed g with two hidden layers", sharing="indexed", hidden=[256, 256]),
    "five-steps": _pfdl("PFDL, indexed g, five g-steps", sharing="indexed", fit_steps=5),
    "centred": _pfdl("PFDL, indexed g, centred", sharing="indexed", center="batch"),
    "class-centred": _pfdl(
        "PFDL, indexed g, centred by class", sharing="indexed", row={"class_centred": True}
    ),
    "batch-16": _pfdl("PFDL, batches of 16", row=_BATCH_16),
    "batch-256": _pfdl("PFDL, batches of 256", row=_BATCH_256),
    "width-64": _pfdl("PFDL, 64 features, by a hidden layer", row=_WIDTH_64),
    "width-64-before": _pfdl(
        "PFDL, the features before that layer", row={**_WIDTH_64, "layer": -2}
    ),
    "erm-batch-16": Row("ERM, batches of 16", batch_size=16),
    "erm-batch-256": Row("ERM, batches of 256", batch_size=256),
    "erm-width-64": Row("ERM, 64 features", width=64),
}
"""Variants of the published penalty, and the plain trainings they are compared with."""

RIVALS: dict[str, Row] = {
    "dwr-samples": Row(
        "DWR, one weight per training sample",
        "dwr-samples",
        {"dwr-samples": {"steps": 50}},
        paper=_DWR_PAPER,
    ),
    "dwr": Row("DWR on batches (an adaptation)", "dwr", paper=_DWR_PAPER),
    "cnbb": Row("CNBB's weights", "cnbb"),
    "stablenet": Row("StableNet", "stablenet"),
}
"""Weightings of other authors; at its default setting StableNet leaves the weights of 64 samples
equal.
"""

NOT_RUN = {
    "sampler-or-classes": Row(
        "sampler, inferred contexts, else classes", contexts="inferred", sampler="groups"
    ),
    "groupdro-contexts": Row(
        "GroupDRO, groups = inferred contexts (not class × context)", "groupdro"
    ),
    "pairwise": _pfdl("PFDL, indexed g, pairwise form", sharing="indexed", form="pairwise"),
    "pairwise-centred": _pfdl(
        "PFDL, indexed g, pairwise form, centred",
        sharing="indexed",
        form="pairwise",
        center="batch",
    ),
}
"""Rows of published results: the first is made of ``sampler`` and ``sampler-classes``, the others
no longer run.
"""

ROWS = {"erm": PAPER["erm"], **PAPER, **CONTROLS, **BALANCING, **RIVALS, **FACTORS, **GRID}

_METHODS = ("erm", "erm-classes", "sampler-classes", "pfdl", "level", "dwr", "cnbb", "stablenet")
LISTS: dict[str, tuple[str, ...]] = {
    "paper": tuple(PAPER),
    "declared": DECLARED,
    "methods": tuple(dict.fromkeys([*_METHODS, *BALANCING])),
    "factors": ("erm", "pfdl", *FACTORS),
    "grid": tuple(GRID),
    "practice": (
        "erm",
        "sampler-classes",
        "sampler",
        "sampler-known",
        "dfr-held-out",
        "dfr-held-out-known",
    ),
}
"""Lists of rows that have a name."""


def find_row(key: str, *, measured: bool = False) -> Row:
    """Return the row of a key: one of the tables above, or any objective that has a name.

    Args:
        key: Such as ``"pfdl"`` or ``"weight-10"``; or the name of a registered objective, or
            several joined by ``+``. Such a row has the objective's own settings, and the contexts
            are inferred if it reads contexts.
        measured: Whether a row of published results will do that this version cannot run.

    Raises:
        ValueError: If there is no such row or objective.
    """
    known = {**ROWS, **NOT_RUN} if measured else ROWS
    if key in known:
        return known[key]
    names = {info.name for info in list_objectives()}
    if not set(key.split("+")) <= names:
        check_choice("the row", key, sorted({*known, *names}))
    objective = make_objective(key, 2, num_classes=2, num_contexts=2)
    return Row(key, key, contexts="inferred" if objective.needs_contexts else "hidden")


def row_keys(text: str) -> tuple[str, ...]:
    """Return the keys that a user names: keys with commas, and names of lists, each key once."""
    lists = [LISTS.get(word, (word,)) for word in text.split(",")]
    return tuple(dict.fromkeys(chain.from_iterable(lists)))
