"""What a screening has to say in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pfdl.tabular import screening
from pfdl.tabular.moments import Mask
from pfdl.tabular.screening import Outcome, Screening

if TYPE_CHECKING:
    from pfdl.tabular.selector import LeakScreen

_NAMES_SHOWN = 8
CAUSES = (
    "Three things do that: leakage (computed from the label, or after it), an outcome that came"
    " later, or rows selected by it"
)
LIMITS = (
    "This does not test for truncation, nor for rows selected by a process that tied no column to"
    " the label."
)


def verdict(result: Screening, names: Sequence[str]) -> str:
    """Return the outcome in a few sentences that name the columns and say what to do."""
    sentences = [
        *_about_table(result, names),
        *_about_columns(result, names),
        *_about_environments(result, names),
    ]
    if result.kept.all():
        sentences.append("Every column is kept.")
    sentences += _about_rows(result)
    if result.outcome in (Outcome.FOUND, Outcome.NOTHING):
        sentences.append(LIMITS)
    return " ".join(sentences)


def _about_table(result: Screening, names: Sequence[str]) -> list[str]:
    if result.outcome is Outcome.FOUND:
        return []
    words = result.outcome.value.format(rows=result.rows, columns=len(names))
    return [f"{words[0].upper()}{words[1:]}."]


def _about_columns(result: Screening, names: Sequence[str]) -> list[str]:
    """Return a sentence for each decision that columns met with."""

    def say(words: str, columns: Mask) -> list[str]:
        return [words.format(_listed(_chosen(names, columns)))] if columns.any() else []

    strong = _kept_though_strong(result)
    return [
        *say(
            f"Behaving like an effect of the label: {{}}. {CAUSES}. Left out.",
            result.met(screening.FOLLOWS_LABEL),
        ),
        *say(
            "The label over again: {}. Left out, as what is computed from the label is not known"
            " before it.",
            result.met(screening.COPY),
        ),
        *say(
            "Behaving like an effect of the label, but kept as asked: {}.",
            result.met(screening.AS_ASKED),
        ),
        *say(f"Behaving like an effect of the label: {{}}. {CAUSES}. Kept, as not sure.", strong),
        *say(
            "Suspected of being an effect of the label: {}. Kept: many such columns are honest.",
            result.met(screening.SUSPICIOUS) & ~strong,
        ),
        *_about_pairs(result, names),
        *_about_explained(result, names),
        *say(
            "Left out then, too, as adding nothing: {}.",
            result.met(screening.ISOLATED),
        ),
        *say(
            "Not to be judged, though the label tells much of it: {}. The other columns tell too"
            " little of it.",
            result.undecided,
        ),
        *say(
            "Nearly a copy of the label: {}. Leave out what was computed from it, or is known"
            " after it.",
            result.met(screening.NEAR_COPY),
        ),
        *say(
            "Numbering the rows: {}. Leave out what only identifies.",
            result.met(screening.IDENTIFIER),
        ),
    ]


def _about_explained(result: Screening, names: Sequence[str]) -> list[str]:
    clearest = (result.grade > 0) & (result.grade == result.grade.max())
    if math.isnan(result.explained_without) or not clearest.any():
        return []
    return [
        f"Without {_listed(_chosen(names, clearest))} the columns explain"
        f" {_percent(result.explained_without)} of the label in this sample, with all of them"
        f" {_percent(result.explained)}."
    ]


def _about_pairs(result: Screening, names: Sequence[str]) -> list[str]:
    out = [pair for pair in result.pairs if not result.kept[list(pair)].all()]
    if not out:
        return []
    shown = [f"{names[first]} with {names[second]}" for first, second in out[:_NAMES_SHOWN]]
    return [f"Together they make the label: {_listed(shown)}. Left out."]


def _about_environments(result: Screening, names: Sequence[str]) -> list[str]:
    seen = result.environments
    if seen is None:
        return []
    changing = result.decision == screening.CHANGES
    if not changing.any():
        return [f"The {len(seen.names)} environments give no further reason to leave out a column."]
    return [
        "Left out, as relating to the label differently in different environments:"
        f" {_listed(_chosen(names, changing))}. In an environment not seen in the fit, the error of"
        f" least squares falls from {seen.error.mean():.2f} to {seen.error_of_kept.mean():.2f}"
        f" standard deviations of the label (mean of {len(seen.names)} environments)."
    ]


def _about_rows(result: Screening) -> list[str]:
    if not result.rows_with_holes:
        return []
    return [
        f"Judged on {result.rows:.0f} rows; in {result.rows_with_holes} of them a value is missing,"
        " and the column's middle value took its place."
    ]


def reason(result: Screening, j: int) -> str:
    """Say why column j is under suspicion."""
    if math.isnan(result.m[j]):
        return "It is computed from columns under suspicion."
    doubt = f" Not sure: {result.reasons[j]}." if result.reasons[j] else ""
    return (
        f"The other columns explain {_percent(result.m[j])} of it, {_percent(result.k[j])} once the"
        f" label is known; the label alone explains {_percent(result.label[j])} of it.{doubt}"
    )


def warning(result: Screening, names: Sequence[str]) -> str:
    """Return the warning about what stays in though it behaves like an effect of the label, or is
    nearly a copy of it; empty if nothing does.
    """
    sentences = []
    if strong := _chosen(names, _kept_though_strong(result)):
        sentences.append(
            f"Kept, though behaving like effects of the label: {_listed(strong)}."
            " LeakScreen(drop='strong') leaves them out;"
            f" keep={strong[:_NAMES_SHOWN]} says that you trust them."
        )
    if near := _chosen(names, result.decision == screening.NEAR_COPY):
        sentences.append(
            f"Kept, though nearly a copy of the label: {_listed(near)}. Leave out what was computed"
            " from the label, or is known after it."
        )
    return " ".join(sentences)


def advice(screen: LeakScreen, path: Path, target: str) -> str:
    """Return lines of code that act on the verdict on a file, and run as they are, with what each
    costs.
    """
    result = screen.screening_
    number = screen.target_ == "number"
    model = "LinearRegression()" if number else "LogisticRegression(max_iter=1000)"
    code = (
        "import pfdl.tabular, sklearn.linear_model\n"
        f"X, y, _ = pfdl.tabular.read_table({str(path)!r}, {target!r})\n"
        f"model = sklearn.linear_model.{model}\n"
    )
    clearest = _clearest(screen)
    if clearest:
        without = _share_without(result, target)
        code += (
            f"# Without {_listed(clearest)}{without}. Use this if they will not be known when the"
            f" model predicts, or new rows will not be selected like these.\n"
            f"model.fit(X.drop(columns={clearest!r}), y)\n"
            f"# With every column: {_percent(result.explained)}. Use this if they will be known"
            " then, and new rows will be like these.\n"
        )
    return f"{code}model.fit(X, y)"


def _clearest(screen: LeakScreen) -> list[str]:
    """Return what is left out, or else the columns under the strongest suspicion there is."""
    result = screen.screening_
    table = screen.explain()
    left_out = table.index[table["decision"].isin(screening.LEFT_OUT)]
    if len(left_out) or not result.grade.any():
        return [str(name) for name in left_out]
    strongest = screening.GRADES[int(result.grade.max())]
    return [str(name) for name in table.index[table["grade"] == strongest]]


def _share_without(result: Screening, target: str) -> str:
    if np.isnan(result.explained_without):
        return ""
    return f": {_percent(result.explained_without)} of {target} is explained in this sample"


def _chosen(names: Sequence[str], columns: Mask) -> list[str]:
    return [name for name, chosen in zip(names, columns, strict=True) if chosen]


def _listed(names: Sequence[str]) -> str:
    """Join names as in a sentence, the first few of many."""
    shown = list(names[:_NAMES_SHOWN])
    if len(names) > _NAMES_SHOWN:
        shown.append(f"{len(names) - _NAMES_SHOWN} more")
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _kept_though_strong(result: Screening) -> Mask:
    mask: Mask = (result.grade >= screening.STRONG) & (result.decision == screening.SUSPICIOUS)
    return mask


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.0f} %"
