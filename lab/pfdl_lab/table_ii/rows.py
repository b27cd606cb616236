"""What is compared on the paper's backbone: the paper's method, and controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pfdl.objectives import Objective
from pfdl_lab.contexts.rows import ROWS as CONTEXTS_ROWS
from pfdl_lab.rivals import ACTING
from pfdl_lab.table_ii.matched import MatchedCovariance, MatchedLevel

PAPER_BACKBONE = "resnet50"
PAPER = {row: CONTEXTS_ROWS[published].paper or () for row, published in (("erm", "resnet"), ("pfdl", "pfdl"))}
"""The paper's accuracies in percent on NICO, with its backbone, at its ratios."""


@dataclass(frozen=True)
class TableRow:
    """One way to train.

    Args:
        title: Its name in tables.
        objective: A name for :func:`pfdl.make_objective`.
        settings: The settings of the objective's parts, by their names.
        weight_decay: Of SGD.
        make: Makes an objective that has no name, from the width of the features.
    """

    title: str
    objective: str = "erm"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weight_decay: float = 1e-4
    make: Callable[[int], Objective] | None = None


def _pfdl(title: str, **settings: Any) -> TableRow:
    return TableRow(title, "pfdl", {"pfdl": settings} if settings else {})


def _matched(title: str, sharing: str) -> TableRow:
    return TableRow(title, make=lambda width: Objective([MatchedCovariance(width, sharing=sharing)]))


ROWS: dict[str, TableRow] = {
    "erm": TableRow("ERM", "erm"),
    "placebo": _pfdl("Placebo: PFDL with λ = 0", weight=0.0),
    "pfdl": _pfdl("PFDL"),
    "level": TableRow("Level penalty (no g)", "level"),
    "level-matched": TableRow("Level penalty, as strong as PFDL", make=lambda width: Objective([MatchedLevel(width)])),
    "pfdl-indexed": _pfdl("PFDL, indexed g", sharing="indexed"),
    "pfdl-centred": _pfdl("PFDL, centred", center="batch"),
    "mean": TableRow("Mean of the other features instead of g", "mean-decorrelation"),
    "covariance": _matched("Covariance part alone, as strong as PFDL", "strict"),
    "covariance-indexed": _matched("Covariance part alone, as strong as PFDL, indexed g", "indexed"),
    "standardised": _pfdl("PFDL on standardised features", standardize=True),
    "standardised-indexed": _pfdl("PFDL on standardised features, indexed g", standardize=True, sharing="indexed"),
    "weight-decay": TableRow("ERM, weight decay 5e-4", "erm", weight_decay=5e-4),
    "dwr": TableRow("DWR, as published", "dwr"),
    "cnbb": TableRow("CNBB, as reimplemented", "cnbb"),
    "stablenet": TableRow("StableNet, as published", "stablenet"),
}
ROWS |= {key: TableRow(*rival) for key, rival in ACTING.items()}
