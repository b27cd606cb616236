"""What a fitted screen has to say, in words, as a table and as a plot: the same for the screen and what wraps it."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in

from pfdl._internal.text import printable
from pfdl.tabular.screening import (
    AS_ASKED,
    CHANGES,
    CONSTANT,
    FOLLOWS_LABEL,
    GRADES,
    IDENTIFIER,
    ISOLATED,
    KEPT,
    MISSING,
    NEAR_COPY,
    STRONG,
    SURE,
    SUSPICIOUS,
    Outcome,
    Screening,
)

if TYPE_CHECKING:
    import pandas as pd

    from pfdl.tabular.selector import SelectionScreen

_NAMES_SHOWN, _POINTS_NAMED = 8, 40
# Colours of the library's pages, which exchange them in the dark.
_COLOURS = {
    KEPT: "#0b6bb5",
    SUSPICIOUS: "#a8781a",
    AS_ASKED: "#a8781a",
    FOLLOWS_LABEL: "#b8501a",
    CHANGES: "#8a3fa0",
    ISOLATED: "#5f6670",
}
_SHORT = {
    SUSPICIOUS: "may be an effect of the label",
    AS_ASKED: "behaves like an effect of the label",
    FOLLOWS_LABEL: "behaves like an effect of the label",
    ISOLATED: "adds nothing to the kept columns",
    CHANGES: "its slope differs between groups",
    CONSTANT: "never changes",
    NEAR_COPY: "the label explains 97 % of it or more",
    IDENTIFIER: "numbers the rows",
    MISSING: "too few values to judge",
}
_NOT_SURE = {
    Outcome.AMBIGUOUS: "the other columns do not behave like causes of the label",
    Outcome.FEW_LEFT: "fewer than three columns would be left",
    Outcome.COSTLY: "the other columns explain little of the label",
    Outcome.UNSTABLE: "halves of the rows do not agree on it",
    Outcome.EXACT: "the columns determine the label exactly, so it was computed from them",
}


class ExplainedScreening(ABC):
    """Explain why columns were kept or dropped.

    Where ``fit`` saw no names, as behind a ``ColumnTransformer`` that returns arrays, every method takes them as
    ``input_features``: give the transformer's ``get_feature_names_out()``. Or let the transformer return frames, by
    ``pipeline.set_output(transform="pandas")`` before ``fit``; then nothing is to be given.
    """

    @abstractmethod
    def _fitted_screen(self) -> SelectionScreen:
        """Return the fitted screen.

        Raises:
            NotFittedError: If ``fit`` was not called.
        """

    def explain(self, input_features: Any = None) -> pd.DataFrame:
        """Say why each column was kept or dropped, the most suspicious first.

        Args:
            input_features: Names of the columns, where ``fit`` saw none: behind a ``ColumnTransformer`` give its
                ``get_feature_names_out()``.

        Returns:
            One row per column: ``decision``; ``grade``, how strong the suspicion is; ``why``, in a few words; then the
            figures: ``m``, the share of the column that the other columns explain; ``k``, the same once y is known;
            ``ratio`` = k/m; ``share``, how much of all that can be explained of the column y explains alone;
            ``relevance``, p-value of "it adds nothing to the other columns"; ``survival``, in which share of the halves
            of the rows it surely follows y as well; with environments, ``changes``, p-value of "its slope is the same
            in all environments".
        """
        import pandas as pd

        screen = self._fitted_screen()
        found = screen.screening_
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = found.k / found.m
        table = pd.DataFrame(
            {
                "decision": found.decision.astype(str),
                "grade": [GRADES[grade] for grade in found.grade],
                "why": [_short_reason(found, j) for j in range(len(found.m))],
                "m": found.m,
                "k": found.k,
                "ratio": ratio,
                "share": found.share,
                "relevance": found.relevance,
                "survival": found.survival,
                **({} if found.environments is None else {"changes": found.environments.changes}),
            },
            index=pd.Index(_names(screen, input_features), name="column"),
        )
        return table.iloc[_by_suspicion(found)]

    @property
    def suspects_(self) -> pd.DataFrame:
        """The columns under suspicion, the strongest first: ``grade``, ``decision`` and ``reason``, in sentences."""
        found, table = self._fitted_screen().screening_, self.explain()
        reasons = [_reason(found, j) for j in _by_suspicion(found) if found.grade[j]]
        return table.loc[(table["grade"] != "").to_numpy(), ["grade", "decision"]].assign(reason=reasons)

    def verdict(self, input_features: Any = None) -> str:
        """Return the outcome in a few sentences that name the columns and say what to do.

        Args:
            input_features: Names of the columns, where ``fit`` saw none; see `explain`.
        """
        screen = self._fitted_screen()
        return _verdict(screen.screening_, _names(screen, input_features))

    @property
    def verdict_(self) -> str:
        """The outcome in a few sentences."""
        return self.verdict()

    def plot(self, ax: Any = None, input_features: Any = None) -> Any:
        """Draw m against k for every column that could be judged, in the colour of its decision, and name the first 40.

        Args:
            ax: Matplotlib axes to draw on; new ones by default.
            input_features: Names of the columns, where ``fit`` saw none; see `explain`.

        Returns:
            The axes.
        """
        import matplotlib.pyplot as plt

        table = self.explain(input_features)
        table = table[table["m"].notna()]
        if ax is None:
            _, ax = plt.subplots(figsize=(6.8, 4.8), layout="constrained")
            ax.set_title(textwrap.fill(self.verdict(input_features), 72), fontsize="medium", loc="left")
        for decision, colour in _COLOURS.items():
            if len(chosen := table[table["decision"] == decision]):
                ax.plot(chosen["m"], chosen["k"], "o", color=colour, markersize=5, label=decision)
        beside: Any = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 7.5, "parse_math": False}
        for name, row in table.head(_POINTS_NAMED).iterrows():
            words = f"{name} ({row['grade']})" if row["grade"] else str(name)
            ax.annotate(printable(words), (row["m"], row["k"]), **beside)
        threshold = self._fitted_screen().ratio_threshold
        for slope, words, dash in ((1.0, "k = m", "--"), (threshold, f"k = {threshold:g} m", ":")):
            ax.axline((0.0, 0.0), slope=slope, color=_COLOURS[ISOLATED], linestyle=dash, linewidth=1.2, label=words)
        ax.set_xlabel("m: share of the column that the others explain")
        ax.set_ylabel("k: the same once the label is known")
        ax.legend(fontsize="small", loc="best")
        return ax


def listed(names: Sequence[str]) -> str:
    """Join names as in a sentence, the first few of many."""
    shown = [*names[:_NAMES_SHOWN], *([f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def strong_suspects_kept(found: Screening, names: Sequence[str]) -> str:
    """Return the warning about strong suspects that stay in, and what acts on it; empty if there are none."""
    stay = [name for name, strong in zip(names, _kept_though_strong(found), strict=True) if strong]
    if not stay:
        return ""
    return (
        f"The selection of the rows seems to have tied to the label: {listed(stay)}. Kept, as suspicion is strong, not "
        f"sure: {_NOT_SURE[_doubt(found)]}. SelectionScreen(drop='strong') leaves out such columns; "
        f"keep={stay[:_NAMES_SHOWN]} says that you trust them."
    )


def advice(screen: SelectionScreen, path: Path, target: str) -> str:
    """Return lines of code that act on the verdict on a file, and run as they are, with what each costs."""
    found, suspects = screen.screening_, [str(name) for name in screen.suspects_.index]
    model = "LinearRegression()" if screen.target_ == "number" else "LogisticRegression(max_iter=1000)"
    start = (
        "import pfdl.tabular, sklearn.linear_model\n"
        f"table = pfdl.tabular.read_table({str(path)!r}, {target!r})\n"
        f"model = sklearn.linear_model.{model}"
    )
    if not suspects:
        return f"{start}.fit(table.X, table.y)  # nothing is left out"
    clearest = suspects[: int((found.grade == found.grade.max()).sum())]
    return (
        f"{start}\n"
        f"# Without {listed(clearest)}: {found.explained_without:.0%} of {target} is explained in this sample. Right "
        "where rows will not be selected as here.\n"
        f"model.fit(table.X.drop(columns={clearest!r}), table.y)\n"
        f"# With every column: {found.explained:.0%}. Right where rows will be selected as here, or if you know that "
        "they are no artefact.\n"
        "model.fit(table.X, table.y)"
    )


def _names(screen: SelectionScreen, input_features: Any) -> list[str]:
    return [str(name) for name in _check_feature_names_in(screen, input_features)]


def _kept_though_strong(found: Screening) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = (found.grade >= STRONG) & (found.decision == SUSPICIOUS)
    return mask


def _by_suspicion(found: Screening) -> NDArray[np.intp]:
    return np.lexsort([-np.where(found.grade > 0, np.nan_to_num(found.share), 0.0), -found.grade])


def _reason(found: Screening, j: int) -> str:
    if math.isnan(found.m[j]):
        return "It is computed from columns under suspicion."
    doubt = "" if found.grade[j] == SURE else f" Not sure: {_NOT_SURE[_doubt(found)]}."
    return (
        f"The other columns explain {_percent(found.m[j])} of it, {_percent(found.k[j])} once the label is known; of "
        f"what can be explained the label alone explains {_percent(found.share[j])}.{doubt}"
    )


def _doubt(found: Screening) -> Outcome:
    """Return why a suspect that is not sure is not; beside sure ones it was not found in enough halves."""
    return found.outcome if found.outcome in _NOT_SURE else Outcome.UNSTABLE


def _verdict(found: Screening, names: Sequence[str]) -> str:
    strong, doubt = _kept_though_strong(found), _NOT_SURE[_doubt(found)]
    suspected = "suspected of following the label only because of how the rows were selected: "
    groups = (  # a sentence for the columns of each mask, if there are any
        (found.followers, "Left out, as behaving like an effect of the label: {}."),
        (found.decision == AS_ASKED, "Kept as asked, though behaving like an effect of the label: {}."),
        (strong, f"Strongly {suspected}{{}}. Kept, because {doubt}."),
        ((found.decision == SUSPICIOUS) & ~strong, f"{suspected.capitalize()}{{}}. Kept, because {doubt}."),
        (
            _clearest(found),
            f"Without {{}} the columns explain {_percent(found.explained_without)} of the label in this "
            f"sample, with all of them {_percent(found.explained)}.",
        ),
        (found.decision == ISOLATED, "Left out too, as adding nothing: {}."),
        (
            found.decision == CHANGES,
            f"Left out, as relating to the label differently in different environments: {{}}. {_gain(found)}",
        ),
        (
            found.decision == NEAR_COPY,
            "Nearly a copy of the label: {}. Leave out what was computed from it, or is known after it.",
        ),
        (found.decision == IDENTIFIER, "Numbering the rows: {}. Leave out what only identifies."),
    )
    sentences = [
        words.format(listed([name for name, chosen in zip(names, mask, strict=True) if chosen]))
        for mask, words in groups
        if mask.any()
    ]
    if not found.grade.any():
        sentences.insert(0, _nothing_found(found, len(names)))
    if found.environments is not None and not found.environments.dropped.any():
        sentences.append(
            f"The {len(found.environments.names)} environments give no further reason to leave out a column."
        )
    if found.kept.all():
        sentences.append("Every column is kept.")
    return " ".join(sentences)


def _clearest(found: Screening) -> NDArray[np.bool_]:
    """Return the mask of the columns under the strongest suspicion there is."""
    mask: NDArray[np.bool_] = (found.grade > 0) & (found.grade == found.grade.max())
    return mask


def _nothing_found(found: Screening, columns: int) -> str:
    if found.outcome is Outcome.TOO_SMALL:
        return f"{found.rows:.0f} rows of {columns} columns are too few to judge."
    if found.outcome is Outcome.CONSTANT_LABEL:
        return "The label is constant, so there is nothing to screen for."
    return "No column follows the label as if selected by it."


def _gain(found: Screening) -> str:
    """Say what it is worth to leave out columns that change between environments."""
    if (seen := found.environments) is None:
        return ""
    return (
        "In an environment not seen in the fit, the error of least squares falls from "
        f"{seen.error.mean():.2f} to {seen.error_of_kept.mean():.2f} standard deviations of the label (mean of "
        f"{len(seen.names)} environments)."
    )


def _short_reason(found: Screening, j: int) -> str:
    decision = str(found.decision[j])
    if decision in _SHORT:
        return _SHORT[decision]
    if math.isnan(found.m[j]):
        unknown = found.outcome in (Outcome.TOO_SMALL, Outcome.CONSTANT_LABEL)
        return "not judged" if unknown else "computed from other columns"
    if found.share[j] > 0.5:
        return "the other columns say too little of it"
    return "no sign of selection"


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.0f} %"
