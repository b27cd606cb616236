"""MMADS in the report: the paper's Table I beside ours, RMSE by environment, coefficients, kept and dropped columns."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pfdl._internal.runs import Run
from pfdl.data.mmads import SETTINGS, true_coefficients
from pfdl.experiments.mmads.figures import CELLS, METRICS, PAPER
from pfdl.experiments.mmads.report import METRIC_NAMES, SETTING_NAMES
from pfdl.experiments.mmads.run import FIGURE_CELL, METHODS, TEST_RATES
from pfdl.experiments.pairing import paired
from pfdl.report.page import Block, Heading, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.reading import read_results
from pfdl.report.sections.statistics import mean_cell, standard_error, verdict
from pfdl.report.tables import Cell, Missing, Number, Row, Table

KIND = "mmads"
TITLE = "Tables under biased selection (MMADS)"
_ZERO = 1e-9
_TableCell = tuple[int, int, float]


def build(run: Run, problems: list[str]) -> Section:
    """The section of one run."""
    keys = ["setting", "n", "p", "r", "method", "seed", "metric"]
    results = read_results(
        run,
        names=["setting", "method", "metric"],
        numbers=["n", "p", "r", "seed", "value"],
        keys=keys,
        problems=problems,
    )
    planned = len(run.settings.get("settings", [])) * len(run.settings.get("cells", [])) * run.settings.get("seeds", 0)
    done = len(results[["setting", "n", "p", "r", "seed"]].drop_duplicates())
    blocks: list[Block] = [Text(_introduction(results))]
    if done < planned:
        blocks.append(Text(f"Unfinished: {done} of {planned} tasks are done.", "warning"))
    for setting in [name for name in SETTINGS if name in set(results["setting"])]:
        part = results[results["setting"] == setting]
        blocks.append(Heading(SETTING_NAMES[setting]))
        blocks += [_metric_table(part, setting, metric, _columns(run, part, setting)) for metric in METRICS]
        drawn = _figure_cell(part)
        blocks.append(_rmse_plot(_at(part, drawn), setting, drawn))
        if part["metric"].str.startswith("beta[").any():
            at_figure = _at(part, FIGURE_CELL)
            blocks += [_coefficient_plot(at_figure, setting), _kept_table(at_figure, setting)]
    return Section(TITLE, blocks, _finding(results))


def _introduction(results: pd.DataFrame) -> str:
    seeds = results.groupby(["setting", "n", "p", "r"])["seed"].nunique().max() if len(results) else 0
    return (
        "Linear models are fitted to a sample that was selected with a bias (rate r) and tested where the bias is "
        f"another. Mean ± standard error over {seeds} paired seeds; AE and SE are mean and standard deviation of the "
        f"RMSE over the environments r_test = {', '.join(f'{rate:g}' for rate in TEST_RATES)}. Smaller is better. PFDL "
        "is what the paper describes; screened OLS is least squares behind our selection screen, not in the paper."
    )


def _finding(results: pd.DataFrame) -> str:
    """How PFDL and the selection screen compare to least squares, in the setting of the paper."""
    part = results[(results["setting"] == SETTINGS[0]) & (results["metric"] == "ae")]
    sentences = []
    for method in ("PFDL", "screened OLS"):
        differences = {}
        for cell in _sorted_cells(part):
            by_seed = {name: _of(_at(part, cell), name).set_index("seed")["value"] for name in (method, "OLS")}
            differences[_name(cell)] = paired(by_seed[method], by_seed["OLS"])
        if any(one is not None for one in differences.values()):
            sentences.append(verdict(method, "OLS", differences, digits=3, lower_is_better=True))
    return f"Average error, S ⊥ V: {' '.join(sentences)}" if sentences else ""


def _metric_table(part: pd.DataFrame, setting: str, metric: str, cells: Sequence[_TableCell]) -> Table:
    measured = part[part["metric"] == metric]
    rows = []
    for method in METHODS:
        values = [_of(_at(measured, cell), method)["value"] for cell in cells]
        rows.append(Row(method, tuple(mean_cell(value, 3) for value in values)))
        paper = PAPER.get(method)
        if paper is not None and setting == SETTINGS[0]:
            rows.append(Row("in the paper", tuple(_paper_cell(paper, cell, metric) for cell in cells), quiet=True))
    return Table(f"{METRIC_NAMES[metric]}, {SETTING_NAMES[setting]}", "method", [_name(cell) for cell in cells], rows)


def _paper_cell(paper: Sequence[tuple[float, float, float]], cell: _TableCell, metric: str) -> Cell:
    if cell not in CELLS:
        return Missing("not in the paper")
    return Number(paper[CELLS.index(cell)][METRICS.index(metric)], digits=3)


def _rmse_plot(part: pd.DataFrame, setting: str, cell: _TableCell) -> Plot:
    lines = []
    for number, method in enumerate(METHODS):
        chosen = _of(part, method)
        values = {rate: chosen.loc[chosen["metric"] == f"rmse[{rate:g}]", "value"] for rate in TEST_RATES}
        if all(len(one) for one in values.values()):
            means, errors = [one.mean() for one in values.values()], [standard_error(one) for one in values.values()]
            lines.append(Series(method, [f"{rate:g}" for rate in values], means, _drawable(errors), colour=number))
    spread = {line.name: max(line.y) - min(line.y) for line in lines if "oracle" not in line.name}
    steady, wavering = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    summary = (
        f"Trained at {_name(cell)}. Over all environments the RMSE of {steady} varies by {spread[steady]:.3f}, "
        f"that of {wavering} by {spread[wavering]:.3f}."
    )
    # As in the paper's figure: nothing lies between −1.3 and 1.3, and to scale the others would be crowded.
    title, evenly = f"RMSE against r_test, {SETTING_NAMES[setting]}", {"xaxis_type": "category"}
    return Plot(title, summary, "r_test", "RMSE", lines, digits=3, layout=evenly)


def _coefficient_plot(part: pd.DataFrame, setting: str) -> Plot:
    columns = _column_names(part)
    lines = [Series("true β", columns, true_coefficients(len(columns)).tolist(), style="markers", colour=len(METHODS))]
    for number, method in enumerate(METHODS):
        chosen = _of(part, method)
        values = [chosen.loc[chosen["metric"] == f"beta[{column}]", "value"] for column in columns]
        if all(len(one) for one in values):
            errors = _drawable([standard_error(one) for one in values])
            means = [float(one.mean()) for one in values]
            lines.append(Series(method, columns, means, errors, style="markers", colour=number))
    summary = f"Trained at {_name(FIGURE_CELL)}. The V columns have no effect: their coefficients should be 0."
    title, beside = f"Coefficients, {SETTING_NAMES[setting]}", {"scattermode": "group", "scattergap": 0.25}
    return Plot(title, summary, "column", "mean coefficient", lines, digits=3, layout=beside)


def _kept_table(part: pd.DataFrame, setting: str) -> Table:
    columns = _column_names(part)
    rows = []
    for method in METHODS:
        chosen = _of(part, method)
        chosen = chosen[chosen["metric"].str.startswith("beta[")]
        if not len(chosen):
            rows.append(Row(method, (Missing(),) * 4))
            continue
        kept = chosen.assign(kept=chosen["value"].abs() > _ZERO).groupby("metric")["kept"].mean()
        shares = {column: float(kept[f"beta[{column}]"]) for column in columns}
        counts = [sum(share for column, share in shares.items() if column[0] == side) for side in "SV"]
        never = [column for column, share in shares.items() if share == 0]
        sometimes = [f"{column} ({share:.0%})" for column, share in shares.items() if 0 < share < 1]
        rows.append(Row(method, (*(Number(count) for count in counts), _words(never), _words(sometimes))))
    sizes = [sum(column[0] == side for column in columns) for side in "SV"]
    return Table(
        f"Kept and dropped columns, {SETTING_NAMES[setting]}, trained at {_name(FIGURE_CELL)}",
        "method",
        [f"kept of {sizes[0]} causes S", f"kept of {sizes[1]} others V", "dropped in every seed", "kept in some seeds"],
        rows,
        note="A column is dropped where its coefficient is exactly 0. Right would be to keep all S and drop all V.",
        wide=True,
    )


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _column_names(part: pd.DataFrame) -> list[str]:
    names = [metric[5:-1] for metric in part["metric"].unique() if metric.startswith("beta[")]
    return sorted(names, key=lambda name: (name[0], int(name[1:])))


def _columns(run: Run, part: pd.DataFrame, setting: str) -> list[_TableCell]:
    """Cells of the paper where it has figures, those that were planned, and those that there are."""
    planned = [(int(n), int(p), float(r)) for n, p, r in run.settings.get("cells", [])]
    printed = CELLS if setting == SETTINGS[0] else ()
    return list(dict.fromkeys([*printed, *planned, *_sorted_cells(part)]))


def _sorted_cells(part: pd.DataFrame) -> list[_TableCell]:
    found = [(int(n), int(p), float(r)) for n, p, r in part[["n", "p", "r"]].drop_duplicates().to_numpy()]
    return sorted(found, key=lambda cell: CELLS.index(cell) if cell in CELLS else len(CELLS))


def _figure_cell(part: pd.DataFrame) -> _TableCell:
    cells = _sorted_cells(part)
    return FIGURE_CELL if FIGURE_CELL in cells else cells[0]


def _name(cell: _TableCell) -> str:
    return f"n={cell[0]} p={cell[1]} r={cell[2]:g}"


def _at(part: pd.DataFrame, cell: _TableCell) -> pd.DataFrame:
    n, p, r = cell
    return part[(part["n"] == n) & (part["p"] == p) & (part["r"] == r)]


def _of(part: pd.DataFrame, method: str) -> pd.DataFrame:
    return part[part["method"] == method]


def _drawable(errors: list[float]) -> list[float] | None:
    return None if any(error != error for error in errors) else errors
