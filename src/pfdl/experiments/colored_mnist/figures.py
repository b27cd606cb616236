"""Pictures of the Colored-MNIST experiment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pfdl._internal.figures import save_figure
from pfdl.data.colored_mnist import ColoredMNIST
from pfdl.experiments.colored_mnist.rows import CANDIDATES, IRM, PAPER_IRM_PFDL, VREX

_TRAIN_COLOR, _TEST_COLOR = "#4c72b0", "#c44e52"


def draw_environments(data: ColoredMNIST, path: Path, columns: int = 12) -> None:
    """Some coloured digits of the three environments, one row each."""
    environments = {
        "training\nflips 20 %": data.train[0],
        "training\nflips 10 %": data.train[1],
        "test\nflips 90 %": data.test,
    }
    figure = Figure(figsize=(columns * 0.62, 2.5), layout="constrained")
    axes = figure.subplots(len(environments), 1)
    for axis, (name, environment) in zip(axes, environments.items(), strict=True):
        two = environment.images[:columns].numpy()
        colored = np.concatenate([two, np.zeros_like(two[:, :1])], axis=1).transpose(0, 2, 3, 1)
        axis.imshow(np.concatenate(np.pad(colored, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=1), axis=1))
        axis.set_xticks([15 * i + 6.5 for i in range(columns)])
        axis.set_xticklabels([f"{label:.0f}" for label in environment.labels[:columns]], fontsize=8)
        axis.tick_params(length=0, pad=1)
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        axis.spines[:].set_visible(False)
    figure.suptitle(
        "Colour follows the (noisy) label, printed below, in training and opposes it in the test", fontsize=9
    )
    save_figure(figure, path, dpi=130)


def draw_restarts(results: pd.DataFrame, titles: dict[str, str], path: Path) -> None:
    """Test accuracy of every restart, one line of dots per row of the table, with its mean."""
    figure = Figure(figsize=(7.2, 0.42 * len(titles) + 1.1), layout="constrained")
    axis = figure.subplots()
    for height, key in enumerate(titles):
        accuracy = results.loc[results["row"] == key, "test_accuracy"].to_numpy()
        axis.plot(accuracy, np.full(len(accuracy), height), "o", color=_TEST_COLOR, alpha=0.45, ms=5, mew=0)
        axis.plot([accuracy.mean()] * 2, [height - 0.3, height + 0.3], color="black", lw=1.5)
    axis.set_yticks(range(len(titles)), list(titles.values()), fontsize=8)
    axis.invert_yaxis()
    axis.axvline(50, color="grey", lw=0.8, ls=":")
    axis.set_xlim(0, 100)
    axis.set_xlabel("test accuracy, % (a dot is a restart, the bar their mean; dotted: chance)", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path, dpi=130)


def draw_trade_off(summary: pd.DataFrame, path: Path) -> None:
    """What PFDL's weight does to the accuracy in training and test.

    Args:
        summary: Indexed by row, with columns ``train``, ``train_error``, ``test``, ``test_error`` (mean over restarts
            and its standard error).
        path: The file to write.
    """
    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    by_weight, plane = figure.subplots(1, 2)
    curves = {
        "IRM+PFDL": (IRM, [row for row in CANDIDATES[IRM.key] if not row.is_pairwise], "o", "-"),
        "V-REx+PFDL": (VREX, list(CANDIDATES[VREX.key]), "s", "--"),
    }
    for name, (base, rows, marker, line) in curves.items():
        part = summary.loc[[row.key for row in rows]]
        weights = [row.pfdl_weight for row in rows]
        style = {"marker": marker, "ls": line, "ms": 4, "lw": 1.2}
        for split, color in (("train", _TRAIN_COLOR), ("test", _TEST_COLOR)):
            by_weight.errorbar(
                weights, part[split], part[f"{split}_error"], color=color, capsize=2, label=f"{name}, {split}", **style
            )
            by_weight.axhline(summary.loc[base.key, split], color=color, lw=0.8, ls=":" if base is IRM else "-.")
        path_of = summary.loc[[base.key, *part.index]]
        plane.plot(path_of["train"], path_of["test"], color="black", label=f"{name} (numbers: λ)", **style)
        for weight, train, test in zip(
            ["0", *(f"{w:g}" for w in weights)], path_of["train"], path_of["test"], strict=True
        ):
            plane.annotate(weight, (train, test), xytext=(3, 3), textcoords="offset points", fontsize=7)
    paper = [float(figures.split()[0]) for figures in (PAPER_IRM_PFDL.train, PAPER_IRM_PFDL.test)]
    plane.plot(*paper, "*", color="#dd8452", ms=11, ls="none", label="IRM+PFDL in its paper")
    by_weight.set_xscale("log")
    by_weight.set_xlabel("weight λ of PFDL (dotted: IRM alone, dash-dotted: V-REx alone)", fontsize=8)
    by_weight.set_ylabel("accuracy, %", fontsize=8)
    plane.set_xlabel("training accuracy, %", fontsize=8)
    plane.set_ylabel("test accuracy, %", fontsize=8)
    for axis in (by_weight, plane):
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=7, frameon=False)
    save_figure(figure, path, dpi=130)
