"""Draw the pictures of the documentation: ``python docs/pictures/draw.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from pfdl.data import make_mmads
from pfdl.tabular import SelectionScreen
from pfdl.tabular.screening import RATIO_THRESHOLD

HERE = Path(__file__).parent
PHASES = HERE.parents[1] / "evidence" / "phases" / "results.csv.gz"
BLUE, RED, GREY, PALE = "#1b6ca8", "#c8442b", "#5f6670", "#eef3f7"


def main() -> None:
    """Draw them all."""
    plt.rcParams.update({"font.size": 13, "svg.hashsalt": "pfdl", "svg.fonttype": "path"})
    for name, draw in (
        ("two-steps", two_steps),
        ("parts", parts),
        ("mk", m_and_k),
        ("along-training", along_training),
    ):
        figure = draw()
        figure.savefig(HERE / f"{name}.svg", facecolor="white", metadata={"Date": None})
        plt.close(figure)


def two_steps() -> plt.Figure:
    """Algorithm 1: who is updated by which loss."""
    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    axes.set(xlim=(-2, 102), ylim=(-1, 60))
    axes.axis("off")
    _box(axes, 0, 26, 14, "images")
    _box(axes, 20, 26, 18, "backbone")
    _box(axes, 44, 26, 16, "features\nU, n × p", PALE)
    _box(axes, 66, 12, 16, "last\nlayer")
    _box(axes, 68, 42, 12, "g")
    _box(axes, 89, 42, 10, "Ũ", PALE)
    _box(axes, 89, 12, 10, "class", PALE)
    _arrow(axes, (14, 31), (20, 31))
    _arrow(axes, (38, 31), (44, 31))
    _arrow(axes, (60, 28), (66, 18))
    _arrow(axes, (82, 17), (89, 17))
    _arrow(axes, (60, 34), (68, 45))
    _arrow(axes, (80, 47), (89, 47))
    axes.text(
        52, 45, "each feature\nfrom the others", color=GREY, ha="center", va="center", fontsize=12
    )
    axes.text(100, 58, "step 1: g learns, L_g = mean (U − Ũ)²", color=BLUE, ha="right", va="center")
    axes.text(
        0,
        2.5,
        "step 2: the model learns, g frozen:\nL_task + λ · L_decorr(U, Ũ)",
        color=RED,
        va="center",
    )
    axes.text(
        90,
        31.5,
        "L_decorr:\nŨ must not\ngo along with U",
        color=RED,
        ha="center",
        va="center",
        fontsize=12,
    )
    _frame(axes, 66, 40, 16, 14, BLUE)
    _frame(axes, 18, 24, 22, 14, RED)
    _frame(axes, 64, 10, 20, 14, RED)
    return figure


def parts() -> plt.Figure:
    """Draw one feature, what the others predict of it, and the rest, on generated data."""
    generator = np.random.default_rng(0)
    shared, own = generator.normal(size=(2, 300))
    first = shared + 0.6 * own
    others = shared[:, None] + 0.5 * generator.normal(size=(300, 3))
    coefficients, *_ = np.linalg.lstsq(others, first)
    told = others @ coefficients
    figure, axes = plt.subplots(
        1, 3, figsize=(7.0, 3.0), layout="constrained", sharex=True, sharey=True
    )
    for axis, values, title, colour in (
        (axes[0], first, "a feature u", GREY),
        (axes[1], told, "its correlated part ũ", RED),
        (axes[2], first - told, "the rest u − ũ", BLUE),
    ):
        correlation = abs(np.corrcoef(values, others[:, 0])[0, 1])
        axis.scatter(others[:, 0], values, s=9, color=colour, alpha=0.6, linewidths=0)
        axis.set_title(f"{title}\ncorrelation {correlation:.2f}", fontsize=12)
        axis.set_xlabel("another feature")
        axis.grid(alpha=0.25)
    return figure


def m_and_k() -> plt.Figure:
    """What the label-conditional decomposition sees on MMADS."""
    table = make_mmads(n=2000, p=20, r=1.7, seed=0).frame()
    found = SelectionScreen().fit(table.drop(columns="y"), table["y"]).explain()
    figure, axis = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
    end = found["m"].max() * 1.05
    axis.plot([0, end], [0, end], color=GREY, linewidth=1, linestyle=":", label="k = m")
    axis.plot(
        [0, end],
        [0, RATIO_THRESHOLD * end],
        color=GREY,
        linewidth=1,
        label=f"k = {RATIO_THRESHOLD} m",
    )
    for decision, colour, name in (
        ("kept", BLUE, "kept (all are causes of y)"),
        ("follows the label", RED, "follows y: dropped"),
        ("isolated", "#9a9a9a", "isolated: dropped"),
    ):
        chosen = found[found["decision"] == decision]
        axis.scatter(chosen["m"], chosen["k"], color=colour, label=name, zorder=3)
    axis.set(
        xlabel="m: share of a column that the others explain", ylabel="k: the same once y is known"
    )
    axis.legend(fontsize=11)
    axis.grid(alpha=0.25)
    return figure


def along_training() -> plt.Figure:
    """When PFDL helps: accuracy at 1:5 along the training on PACS, with standard errors over the
    seeds.
    """
    results = pd.read_csv(PHASES, dtype={"epoch": str})
    epoch = pd.to_numeric(results["epoch"], errors="coerce")
    tested = results[
        (results["data"] == "pacs") & (results["test"] == "1:5") & (epoch >= 5)
    ].assign(epoch=epoch)
    figure, axis = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
    for row, name, colour, marker, line in (
        ("level-matched", "level penalty, as strong, no g", "#009E73", "s", "--"),
        ("covariance", "decorrelation alone, as strong", "#D55E00", "^", "-."),
        ("pfdl", "PFDL", "#0072B2", "o", "-"),
        ("erm", "ERM: plain training", "black", None, ":"),
    ):
        values = tested[tested["row"] == row].groupby("epoch")["value"]
        means, errors = values.mean(), values.sem()
        axis.plot(
            means.index,
            means,
            line,
            color=colour,
            marker=marker,
            markersize=4,
            markevery=2,
            label=name,
        )
        axis.fill_between(
            means.index, means - errors, means + errors, color=colour, alpha=0.13, linewidth=0
        )
    axis.axvline(80, ymin=0.32, color=GREY, linewidth=0.8)
    axis.text(78, 51.5, "learning rate falls", color=GREY, fontsize=12, ha="right")
    axis.set(xlabel="epoch", ylabel="accuracy at 1:5, %", xlim=(0, 165), ylim=(14, 54))
    axis.legend(loc="lower right", frameon=False)
    axis.grid(alpha=0.25)
    return figure


def _box(axes: Axes, x: float, y: float, width: float, text: str, colour: str = "white") -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, 10, boxstyle="round,pad=0.2", facecolor=colour, edgecolor=GREY
        )
    )
    axes.text(x + width / 2, y + 5, text, ha="center", va="center")


def _frame(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    style = {"boxstyle": "round,pad=0.4", "fill": False, "edgecolor": colour, "linestyle": "--"}
    axes.add_patch(FancyBboxPatch((x, y), width, height, **style))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=12, color=GREY, shrinkA=2, shrinkB=2
        )
    )


if __name__ == "__main__":
    main()
