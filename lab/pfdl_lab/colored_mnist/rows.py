"""The rows of the Colored-MNIST table: methods, their published settings and their published figures, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from pfdl_lab.colored_mnist.stacked import FullBatchConfig

ERM_CONFIG = FullBatchConfig(hidden=256, l2=0.001, lr=0.001, steps=501)
GRAYSCALE_CONFIG = FullBatchConfig(hidden=83, l2=0.00086029, lr=0.0028171, steps=101)
IRM_CONFIG = FullBatchConfig(hidden=390, l2=0.00110794568, lr=0.0004898536566546834, steps=501)
IRM_SETTINGS = {"weight": 91257.18613115903, "anneal": 190}
# V-REx's code minimises R₁ + R₂ + 0.001‖w‖² + 10⁴(R₁ − R₂)² = 2 [mean R + 0.0005‖w‖² + 2·10⁴ Var R].
VREX_CONFIG = FullBatchConfig(hidden=256, l2=0.0005, lr=0.001, steps=501)
VREX_SETTINGS = {"weight": 20_000.0, "anneal": 100}
PAPER_LR = 0.001
"""The paper's "initial learning rate for all methods", which is not IRM's own."""

PENALTY = "pfdl"
L2_CHOICES = (IRM_CONFIG.l2, 0.003)
"""Among which the rows without environment labels choose."""


@dataclass(frozen=True)
class PublishedAccuracy:
    """Accuracies in percent as they were published: mean ± standard deviation."""

    train: str
    test: str


@dataclass(frozen=True)
class ColoredMNISTRow:
    """One training of all restarts.

    Attributes:
        key: Name in results.
        title: Name in the table.
        objective: Name for :func:`pfdl.make_objective`.
        config: Widths, learning rate, number of steps.
        settings: Arguments of the objective's parts.
        grayscale: Train on the digits without their colour.
        contexts: What the objective is told: ``"environments"``, the two labelled training environments; or
            ``"inferred"``, both pooled, and the contexts that :func:`pfdl.infer_contexts` finds.
        published: Figures of IRM's authors.
        paper: Figures of PFDL's paper.
    """

    key: str
    title: str
    objective: str
    config: FullBatchConfig
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grayscale: bool = False
    contexts: str = "environments"
    published: PublishedAccuracy | None = None
    paper: PublishedAccuracy | None = None

    @property
    def pfdl_weight(self) -> float:
        """λ of PFDL; 0 without it."""
        return float(self.settings[PENALTY]["weight"]) if PENALTY in self.settings else 0.0

    @property
    def form(self) -> str:
        """What is not the paper's about its g or its penalty: ``""``, ``"indexed g"``, ``"indexed g, pairwise"``."""
        pfdl = self.settings.get(PENALTY, {})
        parts = ["indexed g"] if pfdl.get("sharing") == "indexed" else []
        return ", ".join([*parts, "pairwise"] if pfdl.get("form") == "pairwise" else parts)


def _with_pfdl(row: ColoredMNISTRow, key: str, title: str, **pfdl: Any) -> ColoredMNISTRow:
    settings = {**row.settings, PENALTY: pfdl}
    objective = f"{row.objective}+{PENALTY}"
    return replace(row, key=key, title=title, objective=objective, settings=settings, published=None, paper=None)


def _weights(
    row: ColoredMNISTRow, weights: tuple[float, ...], *changes: str, **pfdl: Any
) -> tuple[ColoredMNISTRow, ...]:
    """Return a method with PFDL at several strengths λ; what is changed in PFDL stands in the key and the title."""
    key = "-".join([row.key, "pfdl", *(change.removesuffix(" g") for change in changes)])
    title = ", ".join([f"{row.title}+PFDL", *changes])
    return tuple(_with_pfdl(row, f"{key}-{w:g}", f"{title}, λ = {w:g}", weight=w, **pfdl) for w in weights)


GRAYSCALE = ColoredMNISTRow(
    "grayscale",
    "ERM without colour (oracle)",
    "erm",
    GRAYSCALE_CONFIG,
    grayscale=True,
    published=PublishedAccuracy("73.50", "73.01"),
    paper=PublishedAccuracy("73.5 ± 0.2", "73.0 ± 0.4"),
)
ERM = ColoredMNISTRow(
    "erm",
    "ERM",
    "erm",
    ERM_CONFIG,
    published=PublishedAccuracy("87.39 ± 0.19", "17.07 ± 0.67"),
    paper=PublishedAccuracy("87.40 ± 0.2", "17.1 ± 0.6"),
)
ERM_PFDL = _with_pfdl(ERM, "erm-pfdl", "ERM+PFDL", weight=1.0)
ERM_PFDL_INDEXED = _with_pfdl(ERM, "erm-pfdl-indexed", "ERM+PFDL, indexed g", weight=1.0, sharing="indexed")
VREX = ColoredMNISTRow("vrex", "V-REx", "vrex", VREX_CONFIG, {"vrex": VREX_SETTINGS})
IRM = ColoredMNISTRow(
    "irm",
    "IRM",
    "irm",
    IRM_CONFIG,
    {"irm": IRM_SETTINGS},
    published=PublishedAccuracy("70.81 ± 0.93", "66.90 ± 2.54"),
    paper=PublishedAccuracy("70.8 ± 0.9", "66.9 ± 2.5"),
)
PAPER_IRM_PFDL = PublishedAccuracy("70.6 ± 0.8", "67.5 ± 1.8")
IRM_PFDL = replace(_weights(IRM, (1.0,))[0], title="IRM+PFDL, as in the paper (λ = 1)", paper=PAPER_IRM_PFDL)
IRM_AT_PAPER_LR = replace(
    IRM,
    key="irm-lr-0.001",
    title="IRM, learning rate 0.001",
    config=replace(IRM_CONFIG, lr=PAPER_LR),
    published=None,
)
IRM_PFDL_AT_PAPER_LR = replace(
    _with_pfdl(IRM_AT_PAPER_LR, "irm-pfdl-lr-0.001", "IRM+PFDL, λ = 1, learning rate 0.001", weight=1.0),
    paper=PAPER_IRM_PFDL,
)
IRM_PFDL_SGD = replace(
    _with_pfdl(
        IRM,
        "irm-pfdl-sgd",
        "IRM+PFDL, λ = 1, g by plain SGD",
        weight=1.0,
        optimizer=partial(torch.optim.SGD, lr=PAPER_LR),
    ),
    paper=PAPER_IRM_PFDL,
)
MAIN_ROWS = (
    GRAYSCALE,
    ERM,
    ERM_PFDL,
    ERM_PFDL_INDEXED,
    VREX,
    IRM,
    IRM_PFDL,
    IRM_AT_PAPER_LR,
    IRM_PFDL_AT_PAPER_LR,
    IRM_PFDL_SGD,
)

PAIRS = (
    (IRM_PFDL, IRM),
    (IRM_PFDL_SGD, IRM),
    (IRM_PFDL_AT_PAPER_LR, IRM_AT_PAPER_LR),
    (ERM_PFDL, ERM),
    (ERM_PFDL_INDEXED, ERM),
)
"""Rows with PFDL, and the same without."""

_INDEXED = {"sharing": "indexed"}
_PAIRWISE = {**_INDEXED, "form": "pairwise", "center": "batch"}
CANDIDATES: dict[str, tuple[ColoredMNISTRow, tuple[ColoredMNISTRow, ...]]] = {
    "IRM+PFDL": (IRM, (IRM_PFDL, *_weights(IRM, (10.0, 30.0, 100.0, 300.0)))),
    "V-REx+PFDL": (VREX, _weights(VREX, (10.0, 30.0, 100.0))),
    "IRM+PFDL, indexed g": (
        IRM,
        (
            *_weights(IRM, (1.0, 10.0, 30.0, 100.0, 300.0), "indexed g", **_INDEXED),
            *_weights(IRM, (0.1, 1.0, 10.0), "indexed g", "pairwise", **_PAIRWISE),
        ),
    ),
    "V-REx+PFDL, indexed g": (VREX, _weights(VREX, (10.0, 30.0, 100.0), "indexed g", **_INDEXED)),
}
"""A method without PFDL, and with it at the strengths among which one is chosen. The paper's g is not indexed."""

WITHOUT_LABELS: dict[str, tuple[ColoredMNISTRow, ...]] = {
    title: tuple(
        ColoredMNISTRow(
            f"{objective}-inferred-l2-{l2:.2g}",
            f"{title}, l2 {l2:.2g}",
            objective,
            replace(IRM_CONFIG, l2=l2),
            contexts="inferred",
        )
        for l2 in L2_CHOICES
    )
    for title, objective in (("ERM", "erm"), ("balance", "balance"), ("GroupDRO", "groupdro"))
}
"""Methods that know no environment: l2 and the step to stop at are chosen by the worst inferred group held out."""

ROWS: dict[str, ColoredMNISTRow] = {
    row.key: row
    for rows in (
        MAIN_ROWS,
        *(rows for _, rows in CANDIDATES.values()),
        *WITHOUT_LABELS.values(),
    )
    for row in rows
}
RUNNABLE = tuple(key for key, row in ROWS.items() if "pairwise" not in row.form)
"""All but rows of published results that this version cannot run."""

DEFAULT_ROWS = tuple(key for key, row in ROWS.items() if "indexed" not in row.form)
"""What the table needs; the rest was measured once and can be measured again."""
