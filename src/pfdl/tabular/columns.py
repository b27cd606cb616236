"""Screening a table as it comes: constant columns, copies and one-hot sets included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import independent_columns
from pfdl.tabular.selection import FOLLOWS_LABEL, ISOLATED, KEPT, Decomposer, Screening, linear_decomposer, screen

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

CONSTANT = "constant"
_WEIGHT_THAT_COUNTS = 1e-6


def screen_table(
    X: FloatArray,
    label: FloatArray,
    *,
    decompose: Decomposer = linear_decomposer,
    alpha: float,
    share_threshold: float,
    ratio_threshold: float,
) -> Screening:
    """`screen` for any table: what cannot be judged is taken out first and put back after.

    A constant column is left out. A column that can be computed from others is judged with them: it is dropped if a
    dropped column goes into it, and kept otherwise.
    """
    independent, combination = independent_columns(X)
    core = X if len(independent) == X.shape[1] else X[:, independent]
    found = screen(
        core,
        label,
        decompose=decompose,
        alpha=alpha,
        share_threshold=share_threshold,
        ratio_threshold=ratio_threshold,
    )
    if core is X:
        return found
    decision = np.full(X.shape[1], KEPT, dtype=object)
    uses = np.abs(combination) > _WEIGHT_THAT_COUNTS
    decision[~uses.any(axis=0)] = CONSTANT
    decision[uses[found.decision == FOLLOWS_LABEL].any(axis=0)] = FOLLOWS_LABEL
    decision[independent] = found.decision

    def spread(values: FloatArray) -> FloatArray:
        full = np.full(X.shape[1], np.nan)
        full[independent] = values
        return full

    return replace(
        found,
        m=spread(found.m),
        k=spread(found.k),
        share=spread(found.share),
        relevance=spread(found.relevance),
        decision=decision,
    )


def explanation_frame(found: Screening, names: Sequence[str]) -> pd.DataFrame:
    """One row per column of the table: the evidence and the decision."""
    import pandas as pd

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = found.k / found.m
    return pd.DataFrame(
        {
            "m": found.m,
            "k": found.k,
            "ratio": ratio,
            "share": found.share,
            "relevance": found.relevance,
            "decision": found.decision.astype(str),
        },
        index=pd.Index(names, name="column"),
    )


_COLOURS = {KEPT: "#1b6ca8", FOLLOWS_LABEL: "#c8442b", ISOLATED: "#9a9a9a"}


def plot_explanation(table: pd.DataFrame, verdict: str, ax: Any = None) -> Any:
    """Draw m and k of every column: an arrow from what the others tell about it to the same once y is known.

    Args:
        table: what `explanation_frame` returned.
        verdict: the title.
        ax: Matplotlib axes to draw on; new ones by default.

    Returns:
        The axes.
    """
    import textwrap

    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    table = table[table["m"].notna()]
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 0.26 * len(table) + 1.9), layout="constrained")
    for place, (_, row) in enumerate(table.iterrows()):
        colour = _COLOURS[row["decision"]]
        ax.plot([row["m"], row["k"]], [place, place], color=colour, linewidth=2, alpha=0.5)
        ax.plot(row["m"], place, "o", markerfacecolor="white", markeredgecolor=colour, markersize=7)
        ax.plot(row["k"], place, "o", color=colour, markersize=7)
    ax.set_yticks(range(len(table)), table.index)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel("share of the column that the other columns explain")
    ax.set_title(textwrap.fill(verdict, 72), fontsize="medium", loc="left")
    ax.grid(axis="x", alpha=0.3)
    marks = [
        Line2D([], [], linestyle="", marker="o", color="black", markerfacecolor="white", label="m: y unknown"),
        Line2D([], [], linestyle="", marker="o", color="black", label="k: y known"),
    ]
    present = [decision for decision in _COLOURS if (table["decision"] == decision).any()]
    marks += [Line2D([], [], color=_COLOURS[decision], linewidth=2, label=decision) for decision in present]
    ax.legend(handles=marks, fontsize="small", loc="best")
    return ax
