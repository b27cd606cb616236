"""The readings of PFDL on tables in the report: which comes closest to the paper's row, and how
close that is.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd

from pfdl.runs import Run
from pfdl_lab.mmads.paper import CELLS, METRICS, PAPER, name_cell
from pfdl_lab.mmads.readings import Network, distances
from pfdl_lab.mmads.section import METRIC_NAMES
from pfdl_lab.report.blocks import Block, Cell, Number, Section, Table, TableLine, Text
from pfdl_lab.report.reading import Columns

KIND = "readings"
TITLE = "Readings of PFDL on tables"
SHOWN = 20
KEYS = (*(field.name for field in fields(Network)), "use", "estimator")
CELL = ("n", "p", "r", "seed")
COLUMNS = Columns(
    words=("sees", "optimizer", "batches", "standardised", "use", "estimator"),
    numbers=("width", *CELL, *METRICS),
    keys=(*KEYS, *CELL),
)
SEES = {
    "shared": "the others (the paper's shared g)",
    "indexed": "the others, and which it predicts",
    "own": "the others, a network per column",
    "all": "all columns",
    "all, linear": "all columns, principal components",
    "nothing": "not a reading: no g, principal components",
}


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    if not len(results):
        return Section(TITLE, [Text("No finished results yet.", "warning")])
    found = distances(results).reset_index()
    ranked, described = (
        found[(found["sees"] == "nothing") == is_none] for is_none in (False, True)
    )
    paper_as = ranked[(ranked["sees"] == "shared") & (ranked["use"] == "[X, g]")]
    blocks: list[Block] = [
        _table(
            f"The {SHOWN} readings closest to the paper's row; mean over the cells of Table I",
            ranked.head(SHOWN),
        ),
        _table(
            "The closest without the error of β_S, which the paper does not print",
            ranked.nsmallest(5, "printed"),
        ),
        _table("The closest reading for each thing that g may see", ranked.drop_duplicates("sees")),
        _table("The paper's own words: a shared g whose output joins X", paper_as),
        *(
            _cells("The closest reading, cell by cell", results, line)
            for _, line in ranked.head(1).iterrows()
        ),
        _table("Not a reading but a description of the paper's row", described),
        *(
            _cells("This description, cell by cell", results, line)
            for _, line in described.iterrows()
        ),
    ]
    return Section(TITLE, blocks)


def _table(caption: str, ranked: pd.DataFrame) -> Table:
    paper: list[TableLine] = []
    for method in ("PFDL", "OLS", "DWR"):
        means = [Number(float(np.mean(PAPER[method][metric])), digits=3) for metric in METRICS]
        pairs = [
            (np.array(PAPER[method][metric]), np.array(PAPER["PFDL"][metric])) for metric in METRICS
        ]
        off = [float(np.mean(np.abs(other - theirs) / theirs)) for other, theirs in pairs]
        far = [Number(float(np.mean(some)), digits=3) for some in (off, off[1:])]
        cells: list[Cell] = ["", "", "", *means, *far]
        paper.append(TableLine(f"the paper's row of {method}", tuple(cells), quiet=True))
    lines = [TableLine(_describe(reading), _figures(reading)) for _, reading in ranked.iterrows()]
    columns = [
        "training of g",
        "use",
        "estimator",
        *METRIC_NAMES.values(),
        "distance",
        "without β_S",
    ]
    note = (
        "Distance: mean over cells and metrics of |figure − the paper's PFDL| / the paper's PFDL;"
        " then without β_S."
    )
    return Table(caption, "g sees", columns, [*paper, *lines], note=note)


def _describe(reading: pd.Series) -> str:
    width = f", width {reading['width']:g} p" if reading["width"] else ""
    return f"{SEES[reading['sees']]}{width}"


def _figures(reading: pd.Series) -> tuple[Cell, ...]:
    rows = "batches of 128" if reading["batches"] == "True" else "all rows"
    training = (
        "exact"
        if reading["sees"] in ("all, linear", "nothing")
        else f"{reading['optimizer']}, {rows}"
    )
    scaling = "" if reading["standardised"] == "True" else ", not standardised"
    figures = [Number(float(reading[name]), digits=3) for name in (*METRICS, "distance", "printed")]
    return (f"{training}{scaling}", reading["use"], reading["estimator"], *figures)


def _cells(caption: str, results: pd.DataFrame, best: pd.Series) -> Table:
    """Show one reading beside the paper, cell by cell."""
    chosen = results
    for key in KEYS:
        chosen = chosen[chosen[key] == best[key]]
    means = chosen.groupby(["n", "p", "r"])[list(METRICS)].mean()
    cells = [(number, cell) for number, cell in enumerate(CELLS) if cell in means.index]
    lines = []
    for metric in METRICS:
        ours = tuple(Number(float(means[metric][cell]), digits=3) for _, cell in cells)
        published = tuple(Number(PAPER["PFDL"][metric][number], digits=3) for number, _ in cells)
        lines += [
            TableLine(METRIC_NAMES[metric], ours),
            TableLine("in the paper", published, quiet=True),
        ]
    return Table(caption, "metric", [name_cell(cell) for _, cell in cells], lines)
