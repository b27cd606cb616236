"""Draw the pictures of docs/results/images.md from its results: ``python docs/pictures/draw_study.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from pfdl import context_weights, image_statistics, infer_contexts
from pfdl.data import ContextImages, Shapes, make_split
from pfdl_lab.pairing import paired

RESULTS = Path(__file__).parent.parent / "results"
METHODS = {
    "pfdl": ("PFDL", "#8a8f98", "s"),
    "balance": ("balance, inferred contexts", "#c8442b", "o"),
    "balance-known": ("balance, true contexts (oracle)", "#1b6ca8", "D"),
}
PANELS = {
    "tested where contexts shift most": ("1:5", "shifted"),
    "tested as trained": ("5:1", "same"),
}
SHOWN_CONTEXTS, SHOWN_IMAGES = 4, 9


def main() -> None:
    """Draw them all."""
    plt.rcParams.update({"font.size": 9})
    for name, figure in (("images-gain.png", gain()), ("images-contexts.jpg", contexts())):  # a PNG of noise is large
        figure.savefig(
            RESULTS / name, dpi=160, facecolor="white", metadata={"Software": None} if "png" in name else None
        )
        plt.close(figure)


def gain() -> plt.Figure:
    """Draw paired differences to plain training, data set by data set."""
    results = pd.read_csv(RESULTS / "images" / "results.csv")
    results["dataset"] = results["data"] + ", " + results["backbone"]
    datasets = list(dict.fromkeys(results["dataset"]))
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.8), sharey=True, layout="constrained")
    for axes, (title, tests) in zip(panels, PANELS.items(), strict=True):
        axes.axvline(0, color="#444", linewidth=0.8)
        for number, (key, (label, colour, marker)) in enumerate(METHODS.items()):
            places, means, errors = [], [], []
            for place, dataset in enumerate(datasets):
                part = results[(results["dataset"] == dataset) & results["test"].isin(tests)]
                wide = part.pivot_table(index="seed", columns="row", values="value")
                difference = paired(wide[key].dropna(), wide["erm"].dropna())
                if difference is not None:
                    places.append(place + 0.22 * (number - 1))
                    means.append(difference.mean)
                    errors.append(2 * difference.standard_error)
            axes.errorbar(means, places, xerr=errors, fmt=marker, color=colour, label=label, capsize=2, markersize=4)
        axes.set_xscale("symlog", linthresh=4, linscale=1.6)
        axes.set_xticks([-10, -4, -2, 0, 2, 4, 10, 40], ["−10 ", "−4", "−2", "0", "2", "4", "10", "40"])
        axes.set(title=title, xlim=(-12, 60))
        axes.grid(axis="x", color="#e3e5e8")
    panels[0].set_yticks(range(len(datasets)), datasets)
    panels[0].invert_yaxis()
    figure.supxlabel("difference to plain training in points, ± 2 standard errors; beyond 4 the scale is logarithmic")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def contexts() -> plt.Figure:
    """Draw training images of the shapes by the context inferred for them, and the classes' shares in it."""
    source = Shapes(100)
    images = ContextImages(source, make_split(source, ratio="5:1", seed=10, validation_fraction=0.0), "train")
    found = infer_contexts(image_statistics(images.images), images.labels, seed=10)
    weights = context_weights(images.labels, found)
    classes = len(images.labels.unique())
    figure, grid = plt.subplots(
        SHOWN_CONTEXTS,
        SHOWN_IMAGES + 1,
        figsize=(9.5, 4.2),
        width_ratios=[1] * SHOWN_IMAGES + [2.2],
        layout="constrained",
    )
    rng = np.random.default_rng(0)
    for context, (*pictures, shares) in enumerate(grid):
        members = np.flatnonzero(found == context)
        for axes, index in zip(pictures, rng.choice(members, SHOWN_IMAGES, replace=False), strict=True):
            axes.imshow(images.images[index].permute(1, 2, 0))
            axes.set_axis_off()
        labels = images.labels.numpy()[members]
        places = np.arange(classes)
        shares.bar(places - 0.2, np.bincount(labels, minlength=classes), 0.4, color="#8a8f98", label="as found")
        balanced = np.bincount(labels, weights[members], minlength=classes)
        shares.bar(places + 0.2, balanced, 0.4, color="#c8442b", label="weighted")
        shares.set(xticks=[], yticks=[], xlabel="classes" if context == SHOWN_CONTEXTS - 1 else "")
        pictures[0].set_title(f"context {context + 1}", loc="left", fontsize=9)
    grid[0, -1].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    main()
