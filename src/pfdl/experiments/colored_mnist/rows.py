"""The rows of the Colored-MNIST table: methods, their published settings and their published figures, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pfdl.experiments.colored_mnist.stacked import FullBatchConfig

ERM_CONFIG = FullBatchConfig(hidden=256, l2=0.001, lr=0.001, steps=501)
GRAYSCALE_CONFIG = FullBatchConfig(hidden=83, l2=0.00086029, lr=0.0028171, steps=101)
IRM_CONFIG = FullBatchConfig(hidden=390, l2=0.00110794568, lr=0.0004898536566546834, steps=501)
IRM_SETTINGS = {"weight": 91257.18613115903, "anneal": 190}
# V-REx's code minimises R₁ + R₂ + 0.001‖w‖² + 10⁴(R₁ − R₂)² = 2 [mean R + 0.0005‖w‖² + 2·10⁴ Var R].
VREX_CONFIG = FullBatchConfig(hidden=256, l2=0.0005, lr=0.001, steps=501)
VREX_SETTINGS = {"weight": 20_000.0, "anneal": 100}
PENALTY = "pfdl"
"""PFDL is the published penalty in this table; all rows but one let g know which feature it predicts."""


@dataclass(frozen=True)
class Figures:
    """Accuracies in percent as somebody printed them: mean ± standard deviation."""

    train: str
    test: str


@dataclass(frozen=True)
class Row:
    """One training run of all restarts.

    Attributes:
        key: Name of its file.
        title: Name in the table.
        objective: Name for :func:`pfdl.make_objective`.
        config: Widths, learning rate, number of steps.
        settings: Arguments of the objective's parts.
        grayscale: Train on the digits without their colour.
        published: Figures of IRM's authors.
        paper: Figures of PFDL's paper.
    """

    key: str
    title: str
    objective: str
    config: FullBatchConfig
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grayscale: bool = False
    published: Figures | None = None
    paper: Figures | None = None

    @property
    def pfdl_weight(self) -> float:
        """λ of PFDL; 0 without it."""
        return float(self.settings[PENALTY]["weight"]) if PENALTY in self.settings else 0.0

    @property
    def is_pairwise(self) -> bool:
        """Whether it has PFDL in its pairwise form."""
        return self.settings.get(PENALTY, {}).get("form") == "pairwise"


IRM = Row(
    "irm",
    "IRM",
    "irm",
    IRM_CONFIG,
    {"irm": IRM_SETTINGS},
    published=Figures("70.81 ± 0.93", "66.90 ± 2.54"),
    paper=Figures("70.8 ± 0.9", "66.9 ± 2.5"),
)
PAPER_IRM_PFDL = Figures("70.6 ± 0.8", "67.5 ± 1.8")


def _with_pfdl(row: Row, key: str, title: str, **pfdl: Any) -> Row:
    settings = {**row.settings, PENALTY: {"sharing": "indexed", **pfdl}}
    return replace(
        row, key=key, title=title, objective=f"{row.objective}+{PENALTY}", settings=settings, published=None, paper=None
    )


ERM = Row(
    "erm",
    "ERM",
    "erm",
    ERM_CONFIG,
    published=Figures("87.39 ± 0.19", "17.07 ± 0.67"),
    paper=Figures("87.40 ± 0.2", "17.1 ± 0.6"),
)
VREX = Row("vrex", "V-REx", "vrex", VREX_CONFIG, {"vrex": VREX_SETTINGS})
CONTEXT_ROWS = (
    Row(
        "grayscale",
        "ERM without colour (oracle)",
        "erm",
        GRAYSCALE_CONFIG,
        grayscale=True,
        published=Figures("73.50", "73.01"),
        paper=Figures("73.5 ± 0.2", "73.0 ± 0.4"),
    ),
    ERM,
    _with_pfdl(ERM, "erm-pfdl", "ERM+PFDL", weight=1.0),
    VREX,
)
LITERAL_ROW = replace(
    _with_pfdl(IRM, "irm-pfdl-literal", "IRM+PFDL, g and λ as in the paper", weight=1.0, sharing="strict"),
    paper=PAPER_IRM_PFDL,
)
_PAIRWISE = {"form": "pairwise", "center": "batch"}
CANDIDATES = {
    IRM.key: (
        *(
            _with_pfdl(IRM, f"irm-pfdl-{w:g}", f"IRM+PFDL, λ = {w:g}", weight=w)
            for w in (1.0, 10.0, 30.0, 100.0, 300.0)
        ),
        *(
            _with_pfdl(IRM, f"irm-pfdl-pairwise-{w:g}", f"IRM+PFDL, pairwise, λ = {w:g}", weight=w, **_PAIRWISE)
            for w in (0.1, 1.0, 10.0)
        ),
    ),
    VREX.key: tuple(
        _with_pfdl(VREX, f"vrex-pfdl-{w:g}", f"V-REx+PFDL, λ = {w:g}", weight=w) for w in (10.0, 30.0, 100.0)
    ),
}
"""For each method without PFDL, the same with it, at the strengths among which one is chosen."""
