"""``pfdl diagnose TABLE.csv``: the picture of the label-conditional decomposition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pfdl.report.page import Block, Page, Section, Text
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.tabular.picture import Picture
from pfdl.tabular.selection import FOLLOWS_LABEL, ISOLATED, KEPT

_RATIO_FROM = 0.02
"""Below this m the ratio k/m is one of noise."""

_COLOURS = {KEPT: 1, FOLLOWS_LABEL: 2, ISOLATED: 0}


def build_page(picture: Picture, name: str, target: str, notes: Sequence[str]) -> Page:
    """The page about one table.

    Args:
        picture: What was found.
        name: What the table is called.
        target: The column to be predicted.
        notes: Sentences on what was left out of the table.

    Returns:
        The page, for :func:`pfdl.report.page.render`.
    """
    introduction: list[Block] = [
        Text(
            f"{picture.rows} rows, {len(picture.columns)} columns to predict {target} from. Which of them follow "
            f"{target} as if the sample had been selected by it?"
        ),
        *(Text(note[0].upper() + note[1:], "warning") for note in notes),
    ]
    finding = f"{picture.verdict[0].upper()}{picture.verdict[1:]}."
    sections = [
        Section("Verdict", [draw_picture(picture, target), _table(picture, target)], finding),
        Section("How to read this page", [Text(words) for words in _reading(picture, target)]),
    ]
    return Page(f"Diagnosis of {name}", introduction, sections)


def draw_picture(picture: Picture, target: str) -> Plot:
    """Draw m against k, coloured by the decision, with the line of the ratio threshold."""
    points = list(zip(picture.columns, picture.m, picture.k, picture.decisions, strict=True))
    series = []
    for decision, colour in _COLOURS.items():
        chosen = [(column, m, k) for column, m, k, made in points if made == decision and not math.isnan(m)]
        if chosen:
            columns, m, k = zip(*chosen, strict=True)
            series.append(Series(decision, m, k, None, "markers", colour, labels=columns))
    largest = max((m for m in picture.m if not math.isnan(m)), default=0.0)
    smallest = min((m for m in picture.m if not math.isnan(m)), default=0.0)
    ends = [min(smallest, 0.0), max(largest, 0.01)]
    threshold = picture.ratio_threshold
    series.append(Series("k = m", ends, ends, None, "lines", 3))
    series.append(Series(f"k = {threshold:g} m", ends, [threshold * end for end in ends], None, "lines", 4))
    return Plot(
        "m against k",
        f"Each point is a column. Below the line k = {threshold:g} m a column loses what it shares with the others "
        f"once {target} is known; above k = m it gains, as causes of {target} do.",
        "m: share of the column that the others explain",
        f"k: the same once {target} is known",
        series,
        digits=3,
        with_table=False,
    )


def _table(picture: Picture, target: str) -> Table:
    rows = [
        Row(column, (_number(m), _number(k), _number(k / m if m > _RATIO_FROM else math.nan), _number(share), decision))
        for column, m, k, share, decision in zip(
            picture.columns, picture.m, picture.k, picture.share, picture.decisions, strict=True
        )
    ]
    return Table(
        f"The columns and what was decided for {target}", "column", ["m", "k", "k/m", "share", "decision"], rows
    )


def _number(value: float) -> Cell:
    return Missing("cannot be judged") if math.isnan(value) else Number(value, digits=3)


def _reading(picture: Picture, target: str) -> tuple[str, ...]:
    return (
        f"m: how much of a column the other columns explain. k: how much they explain of what {target} leaves of it. "
        f"share: of all that can be told about the column, how much {target} tells alone.",
        f"A column is dropped (follows the label) if the others predict it, it matters to {target} beside them, k/m is "
        f"below {picture.ratio_threshold:g} and its share is above {picture.share_threshold:g}; and only if the "
        f"columns that stay behave like causes of {target}. Otherwise all are kept. Points are drawn as they are "
        "before any column is dropped.",
        f"This is an extension of this project, not part of the PFDL paper. A genuine effect of {target} would be "
        "dropped, too: from one sample it cannot be told from a column that the selection ties to the target.",
    )
