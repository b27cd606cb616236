"""How far our MMADS figures agree with the paper's, and with those of an independent program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pfdl.report.blocks import Block, Heading, Text
from pfdl.report.tables import Number, Row, Table
from pfdl_lab.mmads.paper import CALIBRATION, CELLS, PAPER, Cell, Figures, name_cell

MetricNames = dict[str, str]


class _Compared(NamedTuple):
    method: str
    cell: Cell
    metric: str
    mean: float
    deviation: float
    seeds: int
    reference: float

    @property
    def distance(self) -> float:
        return abs(self.mean - self.reference)


def agreement(part: pd.DataFrame, names: MetricNames) -> list[Block]:
    """Return what is to be said of the setting S ⊥ V: where we miss the paper, and where the calibration.

    Args:
        part: The results of that setting.
        names: What each metric is called in tables.
    """
    missed = [one for one in _compare(part, PAPER) if not one.distance <= 2 * one.deviation + 0.0005]
    blocks: list[Block] = [Heading("Where we miss the paper")]
    if not missed:
        blocks.append(Text("Nowhere by more than two of our standard deviations over seeds."))
    else:
        rows = [
            Row(
                f"{one.method}, {name_cell(one.cell)}",
                (names[one.metric], Number(one.mean, one.deviation, 3), Number(one.reference, digits=3)),
            )
            for one in missed
        ]
        caption = "Figures of the paper further than two of our standard deviations over seeds from our mean"
        columns = ["metric", "ours", "paper"]
        blocks.append(Table(caption, "method", columns, rows, error_name="standard deviation", wide=True))
    compared = _compare(part, CALIBRATION)
    if not compared:
        return blocks
    outside = [one for one in compared if not one.distance <= 2 * _error(one) + 0.0005]
    others = [
        f"{one.method} at {name_cell(one.cell)}, {names[one.metric]}: {one.mean:.3f} here, {one.reference:.3f} there "
        f"({one.distance / max(_error(one), 1e-6):.1f} standard errors)"
        for one in outside
    ]
    text = (
        f"Of {len(compared)} figures of OLS, Lasso, Ridge and DWR, {len(compared) - len(outside)} lie within two "
        "standard errors of what a program written before this one, with the same reading of the generator, measured."
    )
    return [
        *blocks,
        Heading("Against an independent program"),
        Text(text + (f" The others: {'; '.join(others)}." if others else "")),
    ]


def _error(one: _Compared) -> float:
    """Return the standard error of the difference of two means of as many seeds."""
    return float(np.sqrt(2 / one.seeds) * one.deviation)


def _compare(part: pd.DataFrame, reference: Figures) -> list[_Compared]:
    keys = ["method", "n", "p", "r", "metric"]
    groups = part.groupby(keys, sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    found = []
    for line in groups.to_dict("records"):
        cell = (int(line["n"]), int(line["p"]), float(line["r"]))
        method, metric = str(line["method"]), str(line["metric"])
        figures = reference.get(method, {}).get(metric)
        if figures is not None and cell in CELLS:
            measured = (float(line["mean"]), float(line["std"]), int(line["count"]))
            found.append(_Compared(method, cell, metric, *measured, figures[CELLS.index(cell)]))
    return found
