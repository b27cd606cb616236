"""The rows of the Colored-MNIST table: methods, their published settings and their published
figures, as data.

What was measured once and is no longer trained (an indexed g, PFDL on top of V-REx, g by plain SGD,
the pairwise form) is in ``docs/results/colored-mnist/results.csv``; the page prints it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pfdl_lab.colored_mnist.stacked import FullBatchConfig

ERM_CONFIG = FullBatchConfig(hidden=256, l2=0.001, lr=0.001, steps=501)
GRAYSCALE_CONFIG = FullBatchConfig(hidden=83, l2=0.00086029, lr=0.0028171, steps=101)
IRM_CONFIG = FullBatchConfig(hidden=390, l2=0.00110794568, lr=0.0004898536566546834, steps=501)
IRM_SETTINGS = {"weight": 91257.18613115903, "anneal": 190}
# V-REx's code minimises R₁ + R₂ + 0.001‖w‖² + 10⁴(R₁ − R₂)² = 2 [mean R + 0.0005‖w‖² + 2·10⁴ Var
# R].
VREX_CONFIG = FullBatchConfig(hidden=256, l2=0.0005, lr=0.001, steps=501)
VREX_SETTINGS = {"weight": 20_000.0, "anneal": 100}
PAPER_LR = 0.001
"""The paper's "initial learning rate for all methods", which is not IRM's own."""

PENALTY = "pfdl"
L2_CHOICES = (IRM_CONFIG.l2, 0.003)
"""Among which the rows that choose choose."""


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
        contexts: What the objective is told: ``"environments"``, the two labelled training
            environments; or ``"inferred"``, both pooled, and the contexts that
            :func:`pfdl.infer_contexts` finds.
        chooses: Whether l2 and the step to stop at are chosen by the worst group, one class in one
            inferred context, on held-out images of the training environments; the row is then
            measured on the way.
        published: Accuracies in percent by IRM's authors, in training and in the test environment,
            with their standard deviation (SD) over restarts.
        paper: The same of PFDL's paper.
    """

    key: str
    title: str
    objective: str
    config: FullBatchConfig
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grayscale: bool = False
    contexts: str = "environments"
    chooses: bool = False
    published: tuple[str, str] | None = None
    paper: tuple[str, str] | None = None


def _with_pfdl(row: ColoredMNISTRow, key: str, title: str, **pfdl: Any) -> ColoredMNISTRow:
    settings = {**row.settings, PENALTY: pfdl}
    objective = f"{row.objective}+{PENALTY}"
    return replace(
        row,
        key=key,
        title=title,
        objective=objective,
        settings=settings,
        published=None,
        paper=None,
    )


GRAYSCALE = ColoredMNISTRow(
    "grayscale",
    "ERM without colour (oracle)",
    "erm",
    GRAYSCALE_CONFIG,
    grayscale=True,
    published=("73.50", "73.01"),
    paper=("73.5 (SD 0.2)", "73.0 (SD 0.4)"),
)
ERM = ColoredMNISTRow(
    "erm",
    "ERM",
    "erm",
    ERM_CONFIG,
    published=("87.39 (SD 0.19)", "17.07 (SD 0.67)"),
    paper=("87.40 (SD 0.2)", "17.1 (SD 0.6)"),
)
ERM_PFDL = _with_pfdl(ERM, "erm-pfdl", "ERM+PFDL", weight=1.0)
VREX = ColoredMNISTRow("vrex", "V-REx", "vrex", VREX_CONFIG, {"vrex": VREX_SETTINGS})
IRM = ColoredMNISTRow(
    "irm",
    "IRM",
    "irm",
    IRM_CONFIG,
    {"irm": IRM_SETTINGS},
    published=("70.81 (SD 0.93)", "66.90 (SD 2.54)"),
    paper=("70.8 (SD 0.9)", "66.9 (SD 2.5)"),
)
PAPER_IRM_PFDL = ("70.6 (SD 0.8)", "67.5 (SD 1.8)")
IRM_PFDL = tuple(
    _with_pfdl(IRM, f"irm-pfdl-{weight:g}", f"IRM+PFDL, λ = {weight:g}", weight=weight)
    for weight in (1.0, 10.0, 30.0, 100.0, 300.0)
)
"""The paper's weight is 1."""
IRM_AT_PAPER_LR = replace(
    IRM,
    key="irm-lr-0.001",
    title="IRM, learning rate 0.001",
    config=replace(IRM_CONFIG, lr=PAPER_LR),
    published=None,
)
IRM_PFDL_AT_PAPER_LR = replace(
    _with_pfdl(
        IRM_AT_PAPER_LR, "irm-pfdl-lr-0.001", "IRM+PFDL, λ = 1, learning rate 0.001", weight=1.0
    ),
    paper=PAPER_IRM_PFDL,
)
MAIN_ROWS = (
    GRAYSCALE,
    ERM,
    ERM_PFDL,
    VREX,
    IRM,
    replace(IRM_PFDL[0], title="IRM+PFDL, as in the paper (λ = 1)", paper=PAPER_IRM_PFDL),
    *IRM_PFDL[1:],
    IRM_AT_PAPER_LR,
    IRM_PFDL_AT_PAPER_LR,
)

PAIRS = (
    (ERM_PFDL, ERM),
    *((row, IRM) for row in IRM_PFDL),
    (IRM_PFDL_AT_PAPER_LR, IRM_AT_PAPER_LR),
)
"""Rows with PFDL, and the same without."""


def _choices(
    row: ColoredMNISTRow, key: str, title: str, contexts: str
) -> tuple[ColoredMNISTRow, ...]:
    """Return a method with each of the l2 weights, to be stopped where held-out images say."""
    return tuple(
        replace(
            row,
            key=f"{key}-l2-{l2:.2g}",
            title=f"{title}, l2 {l2:.2g}",
            config=replace(IRM_CONFIG, l2=l2),
            contexts=contexts,
            chooses=True,
            published=None,
            paper=None,
        )
        for l2 in L2_CHOICES
    )


CHOOSING: dict[str, tuple[ColoredMNISTRow, ...]] = {
    "ERM": _choices(ERM, "erm-inferred", "ERM", "inferred"),
    "balance": _choices(
        ColoredMNISTRow("", "", "balance", IRM_CONFIG), "balance-inferred", "balance", "inferred"
    ),
    "GroupDRO": _choices(
        ColoredMNISTRow("", "", "groupdro", IRM_CONFIG), "groupdro-inferred", "GroupDRO", "inferred"
    ),
    "IRM, told the environments": _choices(IRM, "irm-chosen", "IRM", "environments"),
}
"""Methods whose l2 weight and step to stop at are chosen: IRM as the others, but that it is told
the environments.
"""

ROWS: dict[str, ColoredMNISTRow] = {row.key: row for row in chain(MAIN_ROWS, *CHOOSING.values())}
