"""MMADS in the report: the paper's Table I beside ours, declared tests, RMSE by environment,
coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from pfdl.data.mmads import SETTINGS, true_coefficients
from pfdl.runs import Run
from pfdl_lab.mmads.paper import CELLS, METRICS, PAPER, Cell as TableCell, name_cell
from pfdl_lab.mmads.run import FIGURE_CELL, METHODS, TEST_RATES
from pfdl_lab.pairing import paired
from pfdl_lab.report.blocks import (
    Block,
    Cell,
    Heading,
    Number,
    Plot,
    Section,
    Table,
    TableLine,
)
from pfdl_lab.report.lines import plot_lines
from pfdl_lab.report.reading import Columns
from pfdl_lab.statistics import NOTHING, by_seed, difference_cell, mean_cell

BySeed = Mapping[tuple[int, int, float, str, str], pd.Series]
"""By n, p, r, method and metric, and then by the seed."""

KIND = "mmads"
TITLE = "Tables under biased selection (MMADS)"
COLUMNS = Columns(
    words=("setting", "method", "metric"),
    numbers=("n", "p", "r", "seed", "value"),
    keys=("setting", "method", "metric", "n", "p", "r", "seed"),
)
METRIC_NAMES = {"beta_s_error": "β_S error", "beta_v_error": "β_V error", "ae": "AE", "se": "SE"}
SETTING_NAMES = {
    "independent": "S ⊥ V (independent)",
    "s_to_v": "S → V (S causes V)",
    "v_to_s": "S ← V (V causes S)",
}
FEW = CELLS[0]
MANY = CELLS[2]
"""The cells that differ in n alone, by a factor of four."""


def build(_: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    blocks: list[Block] = []
    for setting in [name for name in SETTINGS if name in set(results["setting"])]:
        part = results[results["setting"] == setting]
        blocks.append(Heading(SETTING_NAMES[setting]))
        cells = [cell for cell in CELLS if (part[["n", "p", "r"]] == list(cell)).all(axis=1).any()]
        values = by_seed(part, "n", "p", "r", "method", "metric")
        blocks += _rmse_plot(values, setting, FIGURE_CELL if FIGURE_CELL in cells else cells[0])
        if columns := _column_names(values):
            blocks += _coefficient_plot(values, setting, columns)
        measured = [
            _metric_table(values, setting, metric, cells)
            for metric in (*METRICS, "effective_share")
        ]
        # Older runs have no effective sample sizes
        blocks += [table for table in measured if table.rows]
        blocks += _stability(values, setting)
    return Section(TITLE, blocks)


def _metric_table(found: BySeed, setting: str, metric: str, cells: Sequence[TableCell]) -> Table:
    rows = []
    for method in METHODS:
        values = [_at(found, cell, method, metric) for cell in cells]
        if metric in METRICS or any(map(len, values)):
            rows.append(TableLine(method, tuple(mean_cell(one, 3) for one in values)))
        if setting == SETTINGS[0] and metric in PAPER.get(method, ()):
            figures = (Number(PAPER[method][metric][CELLS.index(cell)], digits=3) for cell in cells)
            rows.append(TableLine("in the paper", tuple(figures), quiet=True))
    name = METRIC_NAMES.get(metric, "Effective sample size, as a share of the rows")
    return Table(
        f"{name}, {SETTING_NAMES[setting]}", "method", [name_cell(cell) for cell in cells], rows
    )


def _stability(values: BySeed, setting: str) -> list[Block]:
    """Answer whether a method is stable when n changes: its figures at four times as many rows less
    those at few.
    """
    rows = []
    for method in METHODS:
        found = [
            paired(_at(values, MANY, method, metric), _at(values, FEW, method, metric))
            for metric in METRICS
        ]
        if not any(found):
            continue
        rows.append(TableLine(method, tuple(difference_cell(change, 3) for change in found)))
        if method in PAPER and setting == SETTINGS[0]:
            changes = [PAPER[method][metric][2] - PAPER[method][metric][0] for metric in METRICS]
            printed = tuple(Number(change, digits=3, signed=True) for change in changes)
            rows.append(TableLine("in the paper", printed, quiet=True))
    if not rows:
        return []
    caption = (
        f"Stable when n changes? {name_cell(MANY)} less {name_cell(FEW)}, {SETTING_NAMES[setting]}"
    )
    note = "Near 0: the number of rows hardly matters."
    return [Table(caption, "method", [METRIC_NAMES[metric] for metric in METRICS], rows, note=note)]


def _rmse_plot(found: BySeed, setting: str, cell: TableCell) -> list[Plot]:
    # As in the paper's figure, rates stand at even distances: to scale most of them would be
    # crowded.
    lines = _lines(found, cell, {f"{rate:g}": f"rmse[{rate:g}]" for rate in TEST_RATES})
    summary = (
        f"Trained at {name_cell(cell)}. A flat line is a method that is as good under any"
        " selection."
    )
    return plot_lines(
        f"RMSE against r_test, {SETTING_NAMES[setting]}", summary, "r_test", "RMSE", lines
    )


def _coefficient_plot(found: BySeed, setting: str, columns: Sequence[str]) -> list[Plot]:
    truth = zip(columns, true_coefficients(len(columns)), strict=True)
    lines: dict[str, Mapping[str, Cell]] = {
        "true β": {column: Number(float(value), digits=3) for column, value in truth},
        **_lines(found, FIGURE_CELL, {column: f"beta[{column}]" for column in columns}),
    }
    summary = (
        f"Trained at {name_cell(FIGURE_CELL)}. The V columns have no effect: their coefficients"
        " should be 0."
    )
    title = f"Coefficients, {SETTING_NAMES[setting]}"
    return plot_lines(title, summary, "column", "mean coefficient", lines, is_grouped=True)


def _lines(
    found: BySeed, cell: TableCell, metrics: Mapping[str, str]
) -> dict[str, dict[str, Cell]]:
    """Return a line of each method: at each place the mean of a metric."""
    lines = {}
    for method in METHODS:
        lines[method] = {
            place: mean_cell(_at(found, cell, method, metric), 3)
            for place, metric in metrics.items()
        }
    return lines


def _column_names(values: BySeed) -> list[str]:
    names = {
        metric[5:-1]
        for *cell, _, metric in values
        if metric.startswith("beta[") and tuple(cell) == FIGURE_CELL
    }
    return sorted(names, key=lambda name: (name[0], int(name[1:])))


def _at(values: BySeed, cell: TableCell, method: str, metric: str) -> pd.Series[float]:
    return values.get((*cell, method, metric), NOTHING)
