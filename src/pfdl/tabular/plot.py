"""The evidence of a screening as a plot: m and k of every column."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pfdl.tabular.screening import CHANGES, FOLLOWS_LABEL, ISOLATED, KEPT

if TYPE_CHECKING:
    import pandas as pd

_COLOURS = {KEPT: "#1b6ca8", FOLLOWS_LABEL: "#c8442b", CHANGES: "#e08a1e", ISOLATED: "#9a9a9a"}


@dataclass(frozen=True, eq=False)
class ScreeningPlot:
    """The evidence of one screening, ready to draw.

    Attributes:
        frame: One row per column of the table, as `SelectionScreen.explain` returns it.
        verdict: The outcome in a sentence.
        ratio_threshold: Slope of the line k/m below which a column is a candidate to be dropped.
        share_threshold: What its share must exceed as well.
        rows: Rows of the table.
    """

    frame: pd.DataFrame
    verdict: str
    ratio_threshold: float
    share_threshold: float
    rows: int

    def draw(self, ax: Any = None) -> Any:
        """Draw a line from m to k for every column that could be judged.

        Args:
            ax: Matplotlib axes to draw on; new ones by default.

        Returns:
            The axes.
        """
        import matplotlib.pyplot as plt
        from matplotlib.lines import Line2D

        table = self.frame[self.frame["m"].notna()]
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 0.26 * len(table) + 1.9), layout="constrained")
        for place, (_, row) in enumerate(table.iterrows()):
            colour = _COLOURS[row["decision"]]
            ax.plot([row["m"], row["k"]], [place, place], color=colour, linewidth=2, alpha=0.5)
            ax.plot(row["m"], place, "o", markerfacecolor="white", markeredgecolor=colour, markersize=7)
            ax.plot(row["k"], place, "o", color=colour, markersize=7)
        ax.set_yticks(range(len(table)), table.index)
        ax.set_ylim(max(len(table), 1) - 0.5, -0.5)
        ax.set_xlabel("share of the column that the other columns explain")
        ax.set_title(textwrap.fill(self.verdict, 72), fontsize="medium", loc="left")
        ax.grid(axis="x", alpha=0.3)
        marks = [
            Line2D([], [], linestyle="", marker="o", color="black", markerfacecolor="white", label="m: y unknown"),
            Line2D([], [], linestyle="", marker="o", color="black", label="k: y known"),
        ]
        present = [decision for decision in _COLOURS if (table["decision"] == decision).any()]
        marks += [Line2D([], [], color=_COLOURS[decision], linewidth=2, label=decision) for decision in present]
        ax.legend(handles=marks, fontsize="small", loc="best")
        return ax
