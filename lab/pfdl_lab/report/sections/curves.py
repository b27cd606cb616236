"""Training curves: what the epochs of one or several trainings logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from pfdl.report.blocks import SideBySide
from pfdl.report.plots import Plot, Series

# Column of metrics.csv: title, axis, factor, decimals.
CURVES = {
    "val_accuracy": ("Validation accuracy", "accuracy, %", 100.0, 1),
    "train_accuracy": ("Training accuracy", "accuracy, %", 100.0, 1),
    "train_loss": ("Training objective", "loss with penalties", 1.0, 3),
    "L_g": ("L_g, the loss of the network g", "L_g", 1.0, 5),
    "L_decorr": ("L_decorr, the penalty on the correlated part", "L_decorr", 1.0, 6),
    "R2": ("R² of g: how much of each feature the others predict", "R²", 1.0, 3),
}


def curve_plots(
    trainings: Mapping[str, Sequence[pd.DataFrame]], colours: Mapping[str, int] | None = None
) -> SideBySide:
    """Return a plot for each thing that was logged, side by side.

    Args:
        trainings: By the name of a line, the curves it is the mean of; an epoch that fewer reached is their mean.
        colours: Number of the colour of each line, where other plots give it one; by default its place.

    Returns:
        The plots of what at least one training logged.
    """
    colours = colours or {name: number for number, name in enumerate(trainings)}
    return SideBySide([plot for column in CURVES if (plot := _plot(column, trainings, colours)) is not None])


def _plot(column: str, trainings: Mapping[str, Sequence[pd.DataFrame]], colours: Mapping[str, int]) -> Plot | None:
    title, axis, factor, digits = CURVES[column]
    lines = []
    for name, frames in trainings.items():
        logged = [frame[["epoch", column]] for frame in frames if column in frame.columns]
        if not logged:
            continue
        by_epoch = pd.concat(logged).dropna().groupby("epoch")[column]
        means = factor * by_epoch.mean()
        errors = (factor * by_epoch.sem()).tolist() if len(logged) > 1 else None
        style = "lines" if len(means) > 20 else "lines+markers"
        lines.append(Series(name, (means.index + 1).tolist(), means.tolist(), errors, style, colours[name]))
    lines = [line for line in lines if len(line.y)]
    if not lines:
        return None
    return Plot(title, _in_words(lines, digits), "epoch", axis, lines, digits)


def _in_words(lines: Sequence[Series], digits: int) -> str:
    ends = {line.name: line.y[-1] for line in lines}
    if len(ends) <= 4:
        return "At the end: " + ", ".join(f"{name} {end:.{digits}f}" for name, end in ends.items()) + "."
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return f"At the end from {ends[low]:.{digits}f} ({low}) to {ends[high]:.{digits}f} ({high})."
