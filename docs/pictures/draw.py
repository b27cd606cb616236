"""Draw the pictures of the documentation: ``python docs/pictures/draw.py``."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from pfdl.data import make_mmads
from pfdl.tabular import LeakScreen
from pfdl.tabular.leaks import MOST_RATIO
from pfdl_lab.leaks.section import KINDS, read_records, recall_by_strength
from pfdl_lab.records import open_records
from pfdl_lab.register import difference_of

HERE = Path(__file__).parent
RESULTS, EVIDENCE = HERE.parent / "results", HERE.parents[1] / "evidence"
PHASES = HERE.parents[1] / "evidence" / "phases" / "results.csv.gz"
BLUE, RED, GREY, PALE = "#1b6ca8", "#c8442b", "#5f6670", "#eef3f7"


def main() -> None:
    """Draw them all."""
    plt.rcParams.update({"font.size": 13, "svg.hashsalt": "pfdl", "svg.fonttype": "path"})
    drawn = {
        HERE / "two-steps.svg": two_steps,
        HERE / "parts.svg": parts,
        HERE / "mk.svg": m_and_k,
        HERE / "along-training.svg": along_training,
        RESULTS / "everywhere.svg": everywhere,
        RESULTS / "mmads.svg": errors_of_mmads,
        RESULTS / "contexts.svg": gains_of_contexts,
        RESULTS / "peers.svg": worst_groups,
        RESULTS / "leaks.svg": leaks_found,
    }
    for path, draw in drawn.items():
        figure = draw()
        figure.savefig(path, facecolor="white", metadata={"Date": None})
        plt.close(figure)
        path.write_text(_rounded(path.read_text()))


def _rounded(svg: str) -> str:
    """Return a picture whose coordinates have two decimals: nobody sees more, and it is a third
    smaller. How glyphs are scaled stays exact.
    """
    return re.sub(r"(?<!scale\()-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)


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
    shared, own = generator.normal(size=(2, 120))
    first = shared + 0.6 * own
    others = shared[:, None] + 0.5 * generator.normal(size=(120, 3))
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
    found = LeakScreen().fit(table.drop(columns="y"), table["y"]).explain()
    figure, axis = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
    end = found["m"].max() * 1.05
    axis.plot([0, end], [0, end], color=GREY, linewidth=1, linestyle=":", label="k = m")
    axis.plot(
        [0, end],
        [0, MOST_RATIO * end],
        color=GREY,
        linewidth=1,
        label=f"k = {MOST_RATIO} m",
    )
    for decision, colour, name in (
        ("kept", BLUE, "kept"),
        ("follows the label", RED, "follows y: dropped"),
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


EVERYWHERE = {
    "ResNet-50, PACS": ("phases+fresh-seeds+pacs-late/pacs+pacs@late+pacs", "early"),
    "ResNet-50, PetScapes": ("phases/petscapes", "early"),
    "ResNet-50, shapes": ("decorrelation/shapes@resnet50", "early, sparsely tested"),
    "ResNet-18, PACS": ("decorrelation/pacs@resnet18", "early, sparsely tested"),
    "ResNet-18, shapes": ("decorrelation/shapes@resnet18", "early, sparsely tested"),
    "ResNet-18, PACS, 30 epochs": ("images/pacs@resnet18", ""),
    "ResNet-18, PetScapes, 30 epochs": ("images/petscapes@resnet18", ""),
    "ResNet-18, shapes, 30 epochs": ("images/shapes@resnet18", ""),
    "small network, shapes": ("images/shapes@small", ""),
    "features, PACS": ("images/pacs@efficientnet-lite0-features", ""),
    "features, PetScapes": ("images/petscapes@efficientnet-lite0-features", ""),
    "fine-tuned, PACS": ("images/pacs@efficientnet-lite0", ""),
    "fine-tuned, PetScapes": ("images/petscapes@efficientnet-lite0", ""),
}


def everywhere() -> plt.Figure:
    """PFDL less ERM on every network and data set, with and without shift, early and at the end."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 5.2), layout="constrained", sharey=True)
    for axis, when in zip(panels, ("early", "last"), strict=True):
        axis.axvline(0, color=GREY, linewidth=1)
        for number, (place, early) in enumerate(EVERYWHERE.values()):
            endpoint = early if when == "early" else "last"
            for test, colour, shift in (("1:5", RED, 0.16), ("5:1", BLUE, -0.16)):
                if endpoint:
                    found = difference_of(EVIDENCE, f"{place}/pfdl,erm/{endpoint}/{test}")
                    axis.errorbar(
                        found.mean, -number + shift, xerr=found.reach, fmt="o", color=colour
                    )
        axis.grid(axis="x", alpha=0.25)
    panels[0].set_yticks([-number for number in range(len(EVERYWHERE))], list(EVERYWHERE))
    panels[0].set_title("early in the training (where tested)")
    panels[1].set_title("last epoch")
    figure.supxlabel("PFDL − ERM, points, 95 % interval", fontsize=12)
    panels[1].plot([], [], "o", color=RED, label="contexts reversed (1:5)")
    panels[1].plot([], [], "o", color=BLUE, label="as in training (5:1)")
    figure.legend(fontsize=11, ncol=2, loc="outside upper center")
    return figure


def errors_of_mmads() -> plt.Figure:
    """The error of each method where the selection is another one."""
    records = open_records(EVIDENCE / "mmads")
    rates = (-3, -2, -1.7, -1.5, -1.3, 1.3, 1.5, 1.7, 2, 3)
    lines = {"OLS": GREY, "DWR": "#8a5fa8", "PFDL": RED, "Screened OLS": BLUE}
    figure, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for method, colour in {**lines, "OLS on S (oracle)": "black"}.items():
        means = [
            records.values("independent", method, "n=2000_p=20_r=1.7", f"rmse[{rate:g}]").mean()
            for rate in rates
        ]
        style = ":" if "oracle" in method else "-"
        axis.plot(range(len(rates)), means, style, color=colour, marker="o", label=method)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set(xlabel="r_test (trained at 1.7)", ylabel="RMSE")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=11)
    return figure


GAINS = {
    "readout of features": ("readout/pacs/{},classes/last/{}/240-249", "inferred", "true"),
    "small network on features": (
        "practice/pacs-else-classes-30-epochs/{},sampler-classes/last/{}",
        "sampler-or-classes",
        "",
    ),
    "fine-tuned": (
        "practice/pacs-later-rule-fine-tuned/{},sampler-classes/last/{}",
        "sampler",
        "sampler-known",
    ),
    "ResNet-18 from scratch": (
        "images-contexts/pacs-beyond-classes/{},sampler-classes/last/{}",
        "sampler",
        "sampler-known",
    ),
}


def gains_of_contexts() -> plt.Figure:
    """What contexts gain beyond balanced classes, and what they cost."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained", sharey=True)
    for axis, test, title in (
        (panels[0], "1:5", "contexts reversed (1:5)"),
        (panels[1], "5:1", "as in training (5:1)"),
    ):
        axis.axvline(0, color=GREY, linewidth=1)
        for number, (key, inferred, true) in enumerate(GAINS.values()):
            for row, colour, shift in ((inferred, RED, 0.14), (true, GREY, -0.14)):
                if row:
                    found = difference_of(EVIDENCE, key.format(row, test))
                    axis.errorbar(
                        found.mean, -number + shift, xerr=found.reach, fmt="o", color=colour
                    )
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.25)
    panels[0].set_yticks([-number for number in range(len(GAINS))], list(GAINS))
    panels[1].plot([], [], "o", color=RED, label="inferred contexts")
    panels[1].plot([], [], "o", color=GREY, label="true contexts")
    figure.legend(fontsize=11, ncol=2, loc="outside upper center")
    figure.supxlabel("points beyond balanced classes, 95 % interval", fontsize=12)
    return figure


def worst_groups() -> plt.Figure:
    """The accuracy of the worst group on SpuCoMNIST, beside the peers."""
    records = open_records(EVIDENCE / "spuco-mnist")
    places = ("large", "medium", "small", "variance-high", "variance-low", "variance-medium")
    rows = {
        "ours": RED,
        "erm": GREY,
        "jtt chosen": "#8a5fa8",
        "spare chosen": BLUE,
        "eiil chosen": "#3f8f5f",
    }
    figure, axis = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    for number, (row, colour) in enumerate(rows.items()):
        values = [records.values(f"{one}@chosen", row, "chosen", "worst") for one in places]
        axis.bar(
            np.arange(len(places)) + 0.16 * (number - 2),
            [one.mean() for one in values],
            0.16,
            yerr=[one.sem() for one in values],
            color=colour,
            label="plain training"
            if row == "erm"
            else row.replace(" chosen", "").upper().replace("OURS", "ours"),
        )
    names = [place.replace("-", "\n") for place in places]
    axis.set_xticks(range(len(places)), names)
    axis.set(ylabel="worst group, %", ylim=(0, 105))
    axis.legend(fontsize=10, ncol=5)
    axis.grid(axis="y", alpha=0.25)
    return figure


def leaks_found() -> plt.Figure:
    """Which share of leaks is found, by strength, beside rivals that alarm as often."""
    records = read_records(EVIDENCE / "leaks")
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.4), layout="constrained", sharey=True)
    for axis, (kind, words) in zip(axes, KINDS.items(), strict=True):
        shares = recall_by_strength(records, kind)
        for name, colour in zip(shares, (BLUE, RED, GREY), strict=True):
            axis.plot(shares.index, 100 * shares[name], "o-", color=colour, label=name)
        axis.set(xlabel="correlation r of leak and label", title=f"labels that are {words}")
        axis.grid(alpha=0.25)
    axes[0].set(ylabel="leaks found, %", ylim=(-3, 100))
    axes[0].legend(fontsize=10)
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
