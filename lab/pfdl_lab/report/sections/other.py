"""A kind of run that the report has no section for: its results as they stand."""

from __future__ import annotations

from pfdl._internal.runs import Run
from pfdl.report.blocks import Block, Section, Text
from pfdl.report.tables import Row, Table
from pfdl_lab.report.reading import RESULTS, read_results

MAX_ROWS, MAX_COLUMNS = 200, 16


def build(run: Run, problems: list[str]) -> Section:
    """Build the section of one run."""
    results = read_results(run, names=[], numbers=[], keys=[], problems=problems)
    title = f"{run.folder.resolve().name} ({run.kind})"
    if not len(results):
        return Section(title, [Text("No finished results yet.", "warning")])
    shown = results.iloc[:MAX_ROWS, :MAX_COLUMNS]
    first, *others = shown.columns
    rows = [Row(str(line[0]), tuple(map(str, line[1:]))) for line in shown.itertuples(index=False)]
    blocks: list[Block] = [Table("Results as they stand", str(first), list(map(str, others)), rows)]
    if shown.shape != results.shape:
        blocks.append(Text(f"The first {shown.shape[0]} lines and {shown.shape[1]} columns; all are in {RESULTS}."))
    return Section(title, blocks)
