"""``pfdl diagnose TABLE``: the verdict of the selection screen and the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pfdl.report.blocks import Block, Cell, Listing, Missing, Number, Page, Plot, Row, Section, Table, Text
from pfdl.tabular import SelectionScreen
from pfdl.tabular.screening import AS_ASKED, RATIO_THRESHOLD, SHARE_THRESHOLD, SUSPICIOUS

if TYPE_CHECKING:
    import pandas as pd

_RATIO_FROM = 0.02  # below this m the ratio k/m is one of noise


def build_page(screen: SelectionScreen, name: str, target: str, notes: Sequence[str], advice: str = "") -> Page:
    """Return the page about one table, with notes on what was left out of it and code that acts on the verdict."""
    table = screen.explain()
    introduction: list[Block] = [
        Text(
            f"{screen.screening_.rows:.0f} rows, {len(table)} columns to predict {target} from. Does one of them "
            f"follow {target} only because of how the rows were selected?"
        ),
        *(Text(note[0].upper() + note[1:], "warning") for note in notes),
    ]
    plot = Plot(
        "m against k",
        f"Each point is a column. Below the line k = {RATIO_THRESHOLD} m a column loses what it shares with "
        f"the others once {target} is known; above k = m it gains, as causes of {target} do.",
        screen.plot,
    )
    blocks: list[Block] = [plot, _table(table, target)]
    if advice:
        blocks.insert(0, Listing("What to do, in Python", advice))
    doubtful = bool(table["decision"].isin((SUSPICIOUS, AS_ASKED)).any())
    if doubtful:  # in amber: something was found, and it is for the reader to decide
        blocks.insert(0, Text(screen.verdict_, "warning"))
    sections = [
        Section("Verdict", blocks, "" if doubtful else screen.verdict_),
        Section("How to read this page", [Text(words) for words in _reading(target)]),
    ]
    return Page(f"Diagnosis of {name}", introduction, sections)


def _table(table: pd.DataFrame, target: str) -> Table:
    rows = [
        Row(
            str(column),
            (
                line["decision"],
                line["grade"] or "none",
                _number(line["m"]),
                _number(line["k"]),
                _number(line["k"] / line["m"] if line["m"] > _RATIO_FROM else math.nan),
                _number(line["share"]),
            ),
        )
        for column, line in table.iterrows()
    ]
    headers = ["decision", "suspicion", "m", "k", "k/m", "share"]
    return Table(f"The columns and what was decided for {target}", "column", headers, rows)


def _number(value: float) -> Cell:
    return Missing("cannot be judged") if math.isnan(value) else Number(value, digits=3)


def _reading(target: str) -> tuple[str, ...]:
    return (
        f"m: how much of a column the other columns explain. k: how much they explain of what {target} leaves of it. "
        f"share: of all that can be explained of the column, how much {target} explains alone.",
        f"A column is a suspect if the others predict it, it matters to {target} even so, k/m is below "
        f"{RATIO_THRESHOLD} and its share is above {SHARE_THRESHOLD}; a strong one if k/m is below "
        f"0.1 and its share above 0.9. It surely follows {target}, and is left out, if besides the columns that stay "
        "behave like causes and halves of the rows agree. Points are drawn as they are before any column is dropped.",
        f"This is an extension of this project, not part of the PFDL paper. A genuine effect of {target} would be "
        f"dropped, too: one sample cannot distinguish it from a column that the selection ties to {target}.",
    )
