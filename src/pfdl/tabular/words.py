"""What a screening found, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pfdl.tabular.screening import (
    CHANGES,
    CONSTANT,
    FOLLOWS_LABEL,
    IDENTIFIER,
    ISOLATED,
    KEPT,
    NEAR_COPY,
    Outcome,
    Screening,
)

if TYPE_CHECKING:
    import pandas as pd

    from pfdl.tabular.environments import Environments

_NAMES_SHOWN = 8
_NOTEWORTHY = 0.01


def verdict_sentence(found: Screening, names: Sequence[str]) -> str:
    """Return the outcome in a sentence or two that name the columns."""
    words = _verdict_of_sample(found, names)
    if found.environments is not None:
        words += f" {_verdict_of_environments(found.environments, names)}"
    return words + _flags(found, names)


def _flags(found: Screening, names: Sequence[str]) -> str:
    """Name what the user should leave out by hand."""
    copies = [name for name, made in zip(names, found.decision, strict=True) if made == NEAR_COPY]
    keys = [name for name, made in zip(names, found.decision, strict=True) if made == IDENTIFIER]
    words = ""
    if copies:
        verb = "are nearly copies" if len(copies) > 1 else "is nearly a copy"
        words += f" {listed(copies)} {verb} of the label: leave out what was computed from it, or is known after it."
    if keys:
        words += f" {listed(keys)} {'number' if len(keys) > 1 else 'numbers'} the rows: leave out what only identifies."
    return words


def _verdict_of_sample(found: Screening, names: Sequence[str]) -> str:
    suspects = listed([name for name, suspect in zip(names, found.suspect, strict=True) if suspect])
    if found.outcome is Outcome.SELECTION:
        followers = [name for name, made in zip(names, found.decision, strict=True) if made == FOLLOWS_LABEL]
        isolated = [name for name, made in zip(names, found.decision, strict=True) if made == ISOLATED]
        more = f" {listed(isolated)} {'were' if len(isolated) > 1 else 'was'} left out too, and would add nothing."
        more = more if isolated else ""
        one = len(followers) == 1
        return (
            f"{listed(followers)} {'follows' if one else 'follow'} the label like {'an effect' if one else 'effects'} "
            f"of it, while the other columns behave like its causes: {'it was' if one else 'they were'} left out. "
            f"The columns left explain {_percent(found.explained_by_kept)} of the label in this sample, all of them "
            f"{_percent(found.explained)}.{more}"
        )
    why_not = {
        Outcome.AMBIGUOUS: "the other columns do not behave like its causes, so cause and effect cannot be "
        "distinguished",
        Outcome.FEW_LEFT: "fewer than three columns would be left",
        Outcome.COSTLY: f"without, only {_percent(found.explained_by_kept)} of the label would be explained instead of "
        f"{_percent(found.explained)}",
        Outcome.UNSTABLE: "halves of the rows do not agree on it",
        Outcome.EXACT: "the columns determine the label exactly, so it was computed from them",
    }
    if found.outcome in why_not:
        return f"{suspects} looked as if selected by the label, but {why_not[found.outcome]}: every column is kept."
    if found.outcome is Outcome.TOO_SMALL:
        return f"{found.rows:.0f} rows of {len(names)} columns are too few to judge: every column is kept."
    if found.outcome is Outcome.CONSTANT_LABEL:
        return "The label is constant, so there is nothing to screen for: every column is kept."
    return "No column follows the label as if selected by it: every column is kept."


def _verdict_of_environments(seen: Environments, names: Sequence[str]) -> str:
    dropped = [name for name, gone in zip(names, seen.dropped, strict=True) if gone]
    changing = [name for name, change in zip(names, seen.changes, strict=True) if change < _NOTEWORTHY]
    if not dropped:
        also = f", although the relation of {listed(changing)} to the label differs" if changing else ""
        return f"The {len(seen.names)} environments give no further reason to leave out a column{also}."
    one = len(dropped) == 1
    return (
        f"{listed(dropped)} {'relates' if one else 'relate'} to the label differently in different environments: "
        f"{'it was' if one else 'they were'} left out. In an environment not seen in the fit, the error of least "
        f"squares falls from {seen.error.mean():.2f} to {seen.error_of_kept.mean():.2f} standard deviations of the "
        f"label (mean of {len(seen.names)} environments)."
    )


def explanation_frame(found: Screening, names: Sequence[str]) -> pd.DataFrame:
    """Return one row per column of the table: the decision, a sentence and the figures."""
    import pandas as pd

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = found.k / found.m
    return pd.DataFrame(
        {
            "decision": found.decision.astype(str),
            "why": [_why(found, j) for j in range(len(names))],
            "m": found.m,
            "k": found.k,
            "ratio": ratio,
            "share": found.share,
            "relevance": found.relevance,
            "survival": found.survival,
            **({} if found.environments is None else {"changes": found.environments.changes}),
        },
        index=pd.Index(names, name="column"),
    )


def listed(names: Sequence[str]) -> str:
    """Join names as in a sentence, the first few of many."""
    if len(names) > _NAMES_SHOWN:
        return f"{', '.join(names[:_NAMES_SHOWN])} and {len(names) - _NAMES_SHOWN} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _why(found: Screening, j: int) -> str:
    decision = found.decision[j]
    if decision == CONSTANT:
        return "It never changes, so it neither helps nor harms."
    if decision == NEAR_COPY:
        return (
            "The label explains 97 % of it or more: if it was computed from the label, or is known only after it, "
            "leave it out yourself."
        )
    if decision == IDENTIFIER:
        return "Its values number or identify the rows, so they say nothing about new ones: leave it out yourself."
    if math.isnan(found.m[j]):
        if found.outcome in (Outcome.TOO_SMALL, Outcome.CONSTANT_LABEL):
            return "Not judged."
        return "It can be computed from other columns, and is kept or left out with them."
    figures = (
        f"The other columns explain {_percent(found.m[j])} of it, {_percent(found.k[j])} once the label is known; of "
        f"what can be explained the label alone explains {_percent(found.share[j])}."
    )
    if decision == FOLLOWS_LABEL:
        return f"It behaves like an effect of the label. {figures}"
    if decision == ISOLATED:
        return f"Given the kept columns, it adds nothing to the prediction. {figures}"
    if found.environments is not None and decision in (KEPT, CHANGES):
        change = found.environments.changes[j]
        words = "differs" if change < _NOTEWORTHY else "does not differ noticeably"
        return f"Its relation to the label {words} between environments (p = {change:.2g}). {figures}"
    if found.suspect[j]:
        return f"It looked as if selected by the label, but that was not confirmed. {figures}"
    return f"It does not behave like an effect of the label. {figures}"


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.0f} %"
