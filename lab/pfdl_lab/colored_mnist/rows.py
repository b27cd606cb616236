"""The rows of the Colored-MNIST table: methods, their published settings and their published
figures, as data.

What was measured once and is no longer trained (an indexed g, PFDL on top of V-REx, g by plain SGD,
the pairwise form) is in ``evidence/colored-mnist``, whose report prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pfdl_lab.colored_mnist.training import FullBatchConfig

ERM_CONFIG = FullBatchConfig(hidden=256, l2=0.001, lr=0.001, steps=501)
GRAYSCALE_CONFIG = FullBatchConfig(hidden=83, l2=0.00086029, lr=0.0028171, steps=101)
IRM_CONFIG = FullBatchConfig(hidden=390, l2=0.00110794568, lr=0.0004898536566546834, steps=501)
IRM_SETTINGS = {"irm": {"weight": 91257.18613115903, "anneal": 190}}
# V-REx's code minimises R₁ + R₂ + 0.001‖w‖² + 10⁴(R₁ − R₂)² = 2 [mean R + 0.0005‖w‖² + 2·10⁴ Var
# R].
VREX_CONFIG = FullBatchConfig(hidden=256, l2=0.0005, lr=0.001, steps=501)
VREX_SETTINGS = {"vrex": {"weight": 20_000.0, "anneal": 100}}
PAPER_LR = 0.001
"""The paper's "initial learning rate for all methods", which is not IRM's own."""

PENALTY = "pfdl"
WEIGHTS = (10.0, 30.0, 100.0, 300.0)
"""Weights of PFDL beside the paper's, which is 1."""

L2_CHOICES = (IRM_CONFIG.l2, 0.003)
"""Among which the rows that choose choose."""


@dataclass(frozen=True)
class ColoredMNISTRow:
    """One training of all restarts.

    Attributes:
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
    """

    title: str
    objective: str
    config: FullBatchConfig
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grayscale: bool = False
    contexts: str = "environments"
    chooses: bool = False


def _with_pfdl(row: ColoredMNISTRow, title: str, weight: float) -> ColoredMNISTRow:
    settings = {**row.settings, PENALTY: {"weight": weight}}
    return replace(row, title=title, objective=f"{row.objective}+{PENALTY}", settings=settings)


_ERM = ColoredMNISTRow("ERM", "erm", ERM_CONFIG)
_IRM = ColoredMNISTRow("IRM", "irm", IRM_CONFIG, IRM_SETTINGS)
_FASTER = replace(_IRM, title="IRM, learning rate 0.001", config=replace(IRM_CONFIG, lr=PAPER_LR))
MAIN_ROWS = {
    "grayscale": ColoredMNISTRow(
        "ERM without colour (oracle)", "erm", GRAYSCALE_CONFIG, grayscale=True
    ),
    "erm": _ERM,
    "erm-pfdl": _with_pfdl(_ERM, "ERM+PFDL", 1.0),
    "vrex": ColoredMNISTRow("V-REx", "vrex", VREX_CONFIG, VREX_SETTINGS),
    "irm": _IRM,
    "irm-pfdl-1": _with_pfdl(_IRM, "IRM+PFDL, as in the paper (λ = 1)", 1.0),
    **{f"irm-pfdl-{one:g}": _with_pfdl(_IRM, f"IRM+PFDL, λ = {one:g}", one) for one in WEIGHTS},
    "irm-lr-0.001": _FASTER,
    "irm-pfdl-lr-0.001": _with_pfdl(_FASTER, "IRM+PFDL, λ = 1, learning rate 0.001", 1.0),
}

IRM_PFDL = ("irm-pfdl-1", *(f"irm-pfdl-{weight:g}" for weight in WEIGHTS))
PAIRS = (
    ("erm-pfdl", "erm"),
    *((key, "irm") for key in IRM_PFDL),
    ("irm-pfdl-lr-0.001", "irm-lr-0.001"),
)
"""Rows with PFDL, and the same without."""

PUBLISHED = {
    "grayscale": ("73.50", "73.01"),
    "erm": ("87.39 (SD 0.19)", "17.07 (SD 0.67)"),
    "irm": ("70.81 (SD 0.93)", "66.90 (SD 2.54)"),
}
"""Accuracies in percent by IRM's authors, in training and in the test environment, with their
standard deviation (SD) over restarts.
"""

PAPER = {
    "grayscale": ("73.5 (SD 0.2)", "73.0 (SD 0.4)"),
    "erm": ("87.40 (SD 0.2)", "17.1 (SD 0.6)"),
    "irm": ("70.8 (SD 0.9)", "66.9 (SD 2.5)"),
    "irm-pfdl-1": ("70.6 (SD 0.8)", "67.5 (SD 1.8)"),
    "irm-lr-0.001": ("70.8 (SD 0.9)", "66.9 (SD 2.5)"),
    "irm-pfdl-lr-0.001": ("70.6 (SD 0.8)", "67.5 (SD 1.8)"),
}
"""The same of PFDL's paper."""

CHOOSING = {
    "erm-inferred": "ERM",
    "balance-inferred": "balance",
    "groupdro-inferred": "GroupDRO",
    "irm-chosen": "IRM, told the environments",
}
"""Methods whose l2 weight and step to stop at are chosen: IRM as the others, but that it is told
the environments.
"""


def candidates(method: str) -> dict[str, ColoredMNISTRow]:
    """Return the rows among which a method of ``CHOOSING`` chooses: one for each l2 weight."""
    objective, _, how = method.partition("-")
    row = ColoredMNISTRow(
        CHOOSING[method],
        objective,
        IRM_CONFIG,
        IRM_SETTINGS if objective == "irm" else {},
        contexts="inferred" if how == "inferred" else "environments",
        chooses=True,
    )
    return {
        f"{method}-l2-{l2:.2g}": replace(
            row, title=f"{row.title}, l2 {l2:.2g}", config=replace(IRM_CONFIG, l2=l2)
        )
        for l2 in L2_CHOICES
    }


def _all_rows() -> Iterator[tuple[str, ColoredMNISTRow]]:
    yield from MAIN_ROWS.items()
    for method in CHOOSING:
        yield from candidates(method).items()


ROWS = dict(_all_rows())
