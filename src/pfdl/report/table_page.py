"""``pfdl diagnose TABLE``: the verdict of the leak screen and the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from pfdl.report.page import blocks, draw_svg, figure, inline, reading, render
from pfdl.tabular import LeakScreen
from pfdl.tabular.leaks import MOST_RATIO

_RATIO_FROM = 0.02  # below this m the ratio k/m is one of noise


def table_page(
    screen: LeakScreen, name: str, target: str, notes: Sequence[str], advice: str
) -> str:
    """Return the page about one table, with notes on what was left out of it and code that acts on
    the verdict.
    """
    suspects = screen.suspects_
    clean = suspects.empty and screen.get_support().all()
    size = (
        f"{screen.screening_.rows:.0f} rows, {screen.n_features_in_} columns to predict {target}"
        " from."
    )
    question = f"{size} Does one of them behave like an effect of {target}?"
    introduction = [
        blocks.text(question),
        *(blocks.text(note[0].upper() + note[1:]) for note in notes),
    ]
    summary = (
        f"Each point is a column. Below the line k = {MOST_RATIO} m a column loses what it shares"
        f" with the others once {target} is known, as effects of {target} do; above k = m it gains,"
        f" as causes of {target} do."
    )
    shown = [
        blocks.text(screen.verdict_, "finding" if clean else "warning"),
        *(
            blocks.text(f"{column} ({suspicion['grade']}): {suspicion['reason']}")
            for column, suspicion in suspects.iterrows()
        ),
        blocks.listing("What to do, in Python", advice),
        blocks.plot("m against k", summary, inline(draw_svg(screen.plot), "plot"), "plot"),
        _columns(screen, target),
    ]
    words = reading.table(target, MOST_RATIO)
    return render(
        f"Diagnosis of {name}",
        introduction,
        [("Verdict", shown), ("How to read this page", [words])],
    )


def _columns(screen: LeakScreen, target: str) -> Markup:
    rows = []
    for column, line in screen.explain().iterrows():
        ratio = line["ratio"] if line["m"] > _RATIO_FROM else math.nan
        figures = (line["label"], line["m"], line["k"], ratio)
        cells = [figure(value, 3, missing="cannot be judged") for value in figures]
        words = [line["decision"], line["grade"] or "none", line["because"]]
        rows.append((str(column), [*words, *cells]))
    headers = ["decision", "suspicion", "why not strong", "label", "m", "k", "k/m"]
    return Markup(
        blocks.table(f"The columns and what was decided for {target}", "column", headers, rows)
    )
