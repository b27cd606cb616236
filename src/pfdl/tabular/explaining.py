"""What a screening has to say in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pfdl.tabular import screening
from pfdl.tabular.moments import Mask
from pfdl.tabular.screening import Outcome, Screening

if TYPE_CHECKING:
    from pfdl.tabular.selector import SelectionScreen

_NAMES_SHOWN = 8


def verdict(found: Screening, names: Sequence[str]) -> str:
    """Return the outcome in a few sentences that name the columns and say what to do."""
    sentences: list[str] = []

    def say(columns: Mask, words: str) -> None:
        if columns.any():
            sentences.append(words.format(_listed(_chosen(names, columns))))

    strong, doubt = _kept_though_strong(found), _doubt(found)
    suspected = "suspected of following the label only because of how the rows were selected: "
    if not found.grade.any():
        words = found.outcome.value.format(rows=found.rows, columns=len(names))
        sentences.append(f"{words[0].upper()}{words[1:]}.")
    say(
        found.decision == screening.FOLLOWS_LABEL,
        "Behaving like an effect of the label: {}. Selection of the rows can do that, so"
        " SelectionScreen leaves out such columns.",
    )
    say(
        found.decision == screening.AS_ASKED,
        "Behaving like an effect of the label, but kept as asked: {}.",
    )
    say(strong, f"Strongly {suspected}{{}}. Kept, because {doubt}.")
    say(
        (found.decision == screening.SUSPICIOUS) & ~strong,
        f"{suspected.capitalize()}{{}}. Kept, because {doubt}.",
    )
    say(
        (found.grade > 0) & (found.grade == found.grade.max()),
        f"Without {{}} the columns explain {_percent(found.explained_without)} of the label in this"
        f" sample, with all of them {_percent(found.explained)}.",
    )
    say(found.decision == screening.ISOLATED, "Left out then, too, as adding nothing: {}.")
    if (seen := found.environments) is not None:
        say(
            found.decision == screening.CHANGES,
            "Left out, as relating to the label differently in different environments: {}. In an"
            " environment not seen in the fit, the error of least squares falls from"
            f" {seen.error.mean():.2f} to {seen.error_of_kept.mean():.2f} standard deviations of"
            f" the label (mean of {len(seen.names)} environments).",
        )
    say(
        found.decision == screening.NEAR_COPY,
        "Nearly a copy of the label: {}. Leave out what was computed from it, or is known"
        " after it.",
    )
    say(
        found.decision == screening.IDENTIFIER,
        "Numbering the rows: {}. Leave out what only identifies.",
    )
    if seen is not None and not (found.decision == screening.CHANGES).any():
        sentences.append(
            f"The {len(seen.names)} environments give no further reason to leave out a column."
        )
    if found.kept.all():
        sentences.append("Every column is kept.")
    return " ".join(sentences)


def reason(found: Screening, j: int) -> str:
    """Say why column j is under suspicion."""
    if math.isnan(found.m[j]):
        return "It is computed from columns under suspicion."
    doubt = "" if found.grade[j] == screening.SURE else f" Not sure: {_doubt(found)}."
    return (
        f"The other columns explain {_percent(found.m[j])} of it, {_percent(found.k[j])} once the"
        " label is known; of what can be explained the label alone explains"
        f" {_percent(found.share[j])}.{doubt}"
    )


def strong_suspects_kept(found: Screening, names: Sequence[str]) -> str:
    """Return the warning about strong suspects that stay in, and what acts on it; empty if there
    are none.
    """
    stay = _chosen(names, _kept_though_strong(found))
    if not stay:
        return ""
    return (
        f"The selection of the rows seems to have tied to the label: {_listed(stay)}. Kept, as"
        f" suspicion is strong, not sure: {_doubt(found)}. SelectionScreen(drop='strong') leaves"
        f" out such columns; keep={stay[:_NAMES_SHOWN]} says that you trust them."
    )


def advice(screen: SelectionScreen, path: Path, target: str) -> str:
    """Return lines of code that act on the verdict on a file, and run as they are, with what each
    costs.
    """
    found = screen.screening_
    model = (
        "LinearRegression()" if screen.target_ == "number" else "LogisticRegression(max_iter=1000)"
    )
    code = (
        "import pfdl.tabular, sklearn.linear_model\n"
        f"X, y, _ = pfdl.tabular.read_table({str(path)!r}, {target!r})\n"
        f"model = sklearn.linear_model.{model}\n"
    )
    if found.grade.any():
        clearest = [
            str(name) for name in screen.suspects_.index[: (found.grade == found.grade.max()).sum()]
        ]
        code += (
            f"# Without {_listed(clearest)}: {_percent(found.explained_without)} of {target} is"
            " explained in this sample. Use this if new rows will not be selected like"
            f" these.\nmodel.fit(X.drop(columns={clearest!r}), y)\n# With every column:"
            f" {_percent(found.explained)}. Use this if new rows will be selected like these, or if"
            f" their selection had nothing to do with {_listed(clearest)}.\n"
        )
    return f"{code}model.fit(X, y)"


def _chosen(names: Sequence[str], columns: Mask) -> list[str]:
    return [name for name, chosen in zip(names, columns, strict=True) if chosen]


def _listed(names: Sequence[str]) -> str:
    """Join names as in a sentence, the first few of many."""
    shown = [
        *names[:_NAMES_SHOWN],
        *([f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []),
    ]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _kept_though_strong(found: Screening) -> Mask:
    mask: Mask = (found.grade >= screening.STRONG) & (found.decision == screening.SUSPICIOUS)
    return mask


def _doubt(found: Screening) -> str:
    """Say why a suspect that is not sure is not; beside sure ones it was not found in enough
    halves.
    """
    doubt = Outcome.UNSTABLE if found.outcome is Outcome.SELECTION else found.outcome
    return str(doubt.value)


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.0f} %"
