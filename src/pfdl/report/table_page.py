"""``pfdl diagnose TABLE``: the verdict of the selection screen and the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from pfdl.report.page import blocks, draw_svg, figure, inline, reading, render
from pfdl.tabular import SelectionScreen
from pfdl.tabular.screening import RATIO_THRESHOLD, SHARE_THRESHOLD

_RATIO_FROM = 0.02  # below this m the ratio k/m is one of noise


def table_page(
    screen: SelectionScreen, name: str, target: str, notes: Sequence[str], advice: str
) -> str:
    """Return the page about one table, with notes on what was left out of it and code that acts on
    the verdict.
    """
    suspects = screen.suspects_
    size = (
        f"{screen.screening_.rows:.0f} rows, {screen.n_features_in_} columns to predict {target}"
        " from."
    )
    question = (
        f"{size} Does one of them follow {target} only because of how the rows were selected?"
    )
    introduction = [
        blocks.text(question),
        *(blocks.text(note[0].upper() + note[1:]) for note in notes),
    ]
    summary = (
        f"Each point is a column. Below the line k = {RATIO_THRESHOLD} m a column loses what it"
        f" shares with the others once {target} is known; above k = m it gains, as causes of"
        f" {target} do."
    )
    shown = [
        blocks.text(screen.verdict_, "finding" if suspects.empty else "warning"),
        *(
            blocks.text(f"{column} ({found['grade']}): {found['reason']}")
            for column, found in suspects.iterrows()
        ),
        blocks.listing("What to do, in Python", advice),
        blocks.plot("m against k", summary, inline(draw_svg(screen.plot), "plot"), "plot"),
        _columns(screen, target),
    ]
    words = reading.table(target, RATIO_THRESHOLD, SHARE_THRESHOLD)
    return render(
        f"Diagnosis of {name}",
        introduction,
        [("Verdict", shown), ("How to read this page", [words])],
    )


def _columns(screen: SelectionScreen, target: str) -> Markup:
    rows = []
    for column, line in screen.explain().iterrows():
        ratio = line["ratio"] if line["m"] > _RATIO_FROM else math.nan
        figures = (line["m"], line["k"], ratio, line["share"])
        cells = [figure(value, 3, missing="cannot be judged") for value in figures]
        rows.append((str(column), [line["decision"], line["grade"] or "none", *cells]))
    headers = ["decision", "suspicion", "m", "k", "k/m", "share"]
    return Markup(
        blocks.table(f"The columns and what was decided for {target}", "column", headers, rows)
    )
