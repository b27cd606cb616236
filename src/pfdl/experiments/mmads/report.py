"""The MMADS results as a page of tables and as the paper's figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pfdl._internal.figures import save_figure
from pfdl._internal.files import write_atomically
from pfdl.data.mmads import SETTINGS, true_coefficients
from pfdl.experiments.mmads.figures import CALIBRATION, CELLS, METRICS, PAPER
from pfdl.experiments.mmads.run import FIGURE_CELL, METHODS, TEST_RATES

METRIC_NAMES = {"beta_v_error": "β_V error", "ae": "AE", "se": "SE"}
SETTING_NAMES = {
    "independent": "S ⊥ V (independent)",
    "s_to_v": "S → V (S causes V)",
    "v_to_s": "S ← V (V causes S)",
}
COLOURS = {
    "OLS": "#7a7a7a",
    "Lasso": "#b0a08a",
    "DWR": "#e08a1e",
    "SRDO": "#8a5fb0",
    "PFDL": "#4fa3a5",
    "screened OLS": "#c8442b",
    "screened OLS + auxiliary": "#8c1d40",
    "OLS on S (oracle)": "#1b6ca8",
}


def write_report(results: pd.DataFrame, folder: Path, *, command: str) -> list[Path]:
    """Write ``table.md`` and the figure into the folder of the results; return what lies there now."""
    table = folder / "table.md"
    write_atomically(table, table_page(results, command))
    return [folder / "results.csv", table, *draw_figure(results, folder)]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over seeds of the three metrics of the table."""
    chosen = results[results["metric"].isin(METRICS)]
    groups = chosen.groupby(["setting", "n", "p", "r", "method", "metric"], sort=False)["value"]
    return groups.agg(["mean", "std", "count"]).reset_index()


def table_page(results: pd.DataFrame, command: str) -> str:
    """The results as one Markdown page."""
    summary = summarise(results)
    seeds = int(summary["count"].max())
    rates = ", ".join(f"{rate:g}" for rate in TEST_RATES)
    parts = [
        "# MMADS: coefficients and stability under biased selection",
        "",
        f"Made by `{command}`. {seeds} paired seeds, {results['num_test'].iloc[0]:,} test rows in each of the "
        f"environments r = {rates}. Each entry is our mean ± standard deviation over seeds and, after the bar, the "
        "paper's own figure where it printed one. AE is the mean and SE the standard deviation (ddof 0) of the RMSE "
        "over environments; smaller is better everywhere. *PFDL* is what the paper describes; *screened OLS* is least "
        "squares behind our selection screen, an extension that is not in the paper.",
        "",
        "![The figure of the paper](mmads.png)",
        "",
        f"Trained at n, p, r = {', '.join(f'{value:g}' for value in FIGURE_CELL)}; mean over seeds.",
    ]
    for setting in [name for name in SETTINGS if name in set(summary["setting"])]:
        parts += ["", f"## {SETTING_NAMES[setting]}"]
        part = summary[summary["setting"] == setting]
        for metric in METRICS:
            parts += ["", f"### {METRIC_NAMES[metric]}", "", _metric_table(part[part["metric"] == metric])]
        if setting == "independent":
            parts += ["", "### Where we miss the paper", "", _misses(part)]
            parts += ["", "### Against an independent program", "", _calibration(part)]
    return "\n".join(parts) + "\n"


def _paper_figure(setting: str, method: str, cell: tuple[int, int, float], metric: str) -> float | None:
    row = PAPER.get(method)
    if setting != "independent" or row is None or cell not in CELLS:
        return None
    return row[CELLS.index(cell)][METRICS.index(metric)]


def _cells(part: pd.DataFrame) -> list[tuple[int, int, float]]:
    return list(part[["n", "p", "r"]].drop_duplicates().itertuples(index=False, name=None))


def _metric_table(part: pd.DataFrame) -> str:
    cells = _cells(part)
    lines = ["| method | " + " | ".join(f"n={n} p={p} r={r:g}" for n, p, r in cells) + " |"]
    lines.append("|---" * (len(cells) + 1) + "|")
    for method in [name for name in METHODS if name in set(part["method"])]:
        entries = []
        for cell in cells:
            row = _row(part, method, cell)
            paper = _paper_figure(row["setting"], method, cell, row["metric"])
            entries.append(f"{row['mean']:.3f}±{row['std']:.3f}" + ("" if paper is None else f" / {paper:.3f}"))
        lines.append(f"| {method} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def _row(part: pd.DataFrame, method: str, cell: tuple[int, int, float]) -> pd.Series[Any]:
    n, p, r = cell
    chosen = (part["method"] == method) & (part["n"] == n) & (part["p"] == p) & (part["r"] == r)
    return part[chosen].iloc[0]


def _misses(part: pd.DataFrame) -> str:
    """Every figure of the paper that lies further than two of our standard deviations from our mean."""
    lines = []
    for _, row in part.iterrows():
        cell = (row["n"], row["p"], row["r"])
        paper = _paper_figure(row["setting"], row["method"], cell, row["metric"])
        if paper is None:
            continue
        if not abs(row["mean"] - paper) <= 2 * row["std"] + 0.0005:
            lines.append(
                f"| {row['method']} | n={cell[0]} p={cell[1]} r={cell[2]:g} | {METRIC_NAMES[row['metric']]} "
                f"| {row['mean']:.3f}±{row['std']:.3f} | {paper:.3f} |"
            )
    if not lines:
        return "Nowhere by more than two of our standard deviations."
    head = "Further than two of our standard deviations over seeds:\n\n"
    return head + "\n".join(["| method | cell | metric | ours | paper |", "|---|---|---|---|---|", *lines])


def _calibration(part: pd.DataFrame) -> str:
    """Agreement with the calibrated table: the difference in standard errors of a difference of two means."""
    compared, outside = 0, []
    for _, row in part.iterrows():
        cell = (row["n"], row["p"], row["r"])
        if row["method"] not in CALIBRATION or cell not in CELLS:
            continue
        compared += 1
        reference = CALIBRATION[row["method"]][CELLS.index(cell)][METRICS.index(row["metric"])]
        standard_error = np.sqrt(2 / row["count"]) * row["std"]
        if not abs(row["mean"] - reference) <= 2 * standard_error + 0.0005:
            outside.append(
                f"{row['method']} at n={cell[0]} p={cell[1]} r={cell[2]:g}, {METRIC_NAMES[row['metric']]}: "
                f"{row['mean']:.3f} here, {reference:.3f} there ({abs(row['mean'] - reference) / standard_error:.1f} "
                "standard errors)"
            )
    text = (
        f"Of {compared} figures of OLS, Lasso, Ridge and DWR, {compared - len(outside)} lie within two standard errors "
        "of what a program written before this one, with the same reading of the generator, measured."
    )
    return text + ("" if not outside else " The others:\n\n" + "\n".join(f"- {line}" for line in outside))


def draw_figure(results: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw the paper's figure: coefficients, RMSE over r_test, AE and SE, one row per setting; as PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n, p, r = FIGURE_CELL
    cell = results[(results["n"] == n) & (results["p"] == p) & (results["r"] == r)]
    means = cell.groupby(["setting", "method", "metric"], sort=False)["value"].mean()
    settings = [name for name in SETTINGS if name in set(cell["setting"])]
    figure, axes = plt.subplots(
        len(settings),
        3,
        figsize=(15, 3.9 * len(settings)),
        layout="constrained",
        squeeze=False,
        gridspec_kw={"width_ratios": [1.25, 1, 1]},
    )
    for (coefficients, errors, bars), setting in zip(axes, settings, strict=True):
        _draw_coefficients(coefficients, means[setting], SETTING_NAMES[setting])
        _draw_errors(errors, means[setting])
        _draw_bars(bars, means[setting])
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9.5)
    paths = [folder / "mmads.png", folder / "mmads.svg"]
    for path in paths:
        save_figure(figure, path, dpi=110)
    plt.close(figure)
    return paths


def _draw_coefficients(ax: Any, means: pd.Series[Any], title: str) -> None:
    columns = [metric[5:-1] for metric in means["OLS"].index if metric.startswith("beta[")]
    width = 0.8 / len(COLOURS)
    for place, (method, colour) in enumerate(COLOURS.items()):
        heights = [means[method][f"beta[{column}]"] for column in columns]
        shift = (place - (len(COLOURS) - 1) / 2) * width
        ax.bar(np.arange(len(columns)) + shift, heights, width, color=colour, label=method)
    places, true = np.arange(len(columns)), true_coefficients(len(columns))
    ax.hlines(true, places - 0.45, places + 0.45, color="black", label="true β")
    ax.set_xticks(range(len(columns)), columns, fontsize=8)
    ax.set_ylabel("estimated coefficient")
    ax.set_title(title, loc="left", fontweight="bold")
    ax.grid(axis="y", alpha=0.3)


def _draw_errors(ax: Any, means: pd.Series[Any]) -> None:
    places = range(len(TEST_RATES))
    for method, colour in COLOURS.items():
        values = [means[method][f"rmse[{rate:g}]"] for rate in TEST_RATES]
        dashed = "oracle" in method
        ax.plot(places, values, color=colour, marker="o", markersize=3.5, linestyle="--" if dashed else "-")
    ax.set_xticks(places, [f"{rate:g}" for rate in TEST_RATES])
    ax.set_xlabel("bias rate of the test environment, r_test")
    ax.set_ylabel("RMSE")
    ax.grid(alpha=0.3)


def _draw_bars(ax: Any, means: pd.Series[Any]) -> None:
    for place, (method, colour) in enumerate(COLOURS.items()):
        for offset, metric in ((0, "ae"), (len(COLOURS) + 1, "se")):
            height = means[method][metric]
            ax.bar(offset + place, height, color=colour)
            ax.annotate(f"{height:.2f}", (offset + place, height), ha="center", va="bottom", fontsize=6.5)
    middle = (len(COLOURS) - 1) / 2
    ax.set_xticks([middle, len(COLOURS) + 1 + middle], ["AE (average error)", "SE (stability error)"])
    ax.grid(axis="y", alpha=0.3)
