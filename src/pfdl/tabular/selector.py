"""The screen as a scikit-learn selector, to stand in front of any estimator."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from pfdl._internal.text import printable
from pfdl.tabular import leaks, screening
from pfdl.tabular.environments import compare_environments
from pfdl.tabular.explaining import reason, verdict, warning
from pfdl.tabular.moments import FloatArray, IndexArray, Mask
from pfdl.tabular.validation import (
    Parameter,
    all_or_nothing,
    check_groups,
    check_parameters,
    check_rows,
    check_table,
    check_weights,
    column_names,
    identifies_rows,
    one_of,
)

if TYPE_CHECKING:
    import pandas as pd


_MOST_MISSING, _POINTS_NAMED = 0.2, 40
#: Whole numbers 0, 1, … of at most so many values are the codes of classes.
_MOST_CODES = 10
# Colours of the library's pages, which exchange them in the dark.
_COLOURS = {
    screening.KEPT: "#0b6bb5",
    screening.SUSPICIOUS: "#a8781a",
    screening.AS_ASKED: "#a8781a",
    screening.FOLLOWS_LABEL: "#b8501a",
    screening.PAIR: "#b8501a",
    screening.CHANGES: "#8a3fa0",
    screening.ISOLATED: "#5f6670",
}


class LeakWarning(UserWarning):
    """A column stays in that behaves like an effect of the label, or is nearly a copy of it."""


#: The former name of `LeakWarning`.
SelectionWarning = LeakWarning


class LeakScreen(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Leave out columns that behave like effects of y.

    Three things make a column behave like that, and the table cannot tell which: leakage (the
    column was computed from y, or after it), an outcome that came later than y, or rows that were
    selected by how close the column lies to y. The screen predicts every column from the others
    twice, without and with y: given y, an effect has nothing left in common with the other columns,
    while causes of y have more in common (they collide in y). Ranks are compared, so that monotone
    copies and heavy tails do no harm. This is an extension of this project, not part of the PFDL
    paper. Cross-validation cannot judge the screen, because within the table a leak does predict.

    Suspicion is graded. A *suspect* looks like an effect of y; a *strong* one passes every check in
    `pfdl.tabular.leaks`; with ``drop="sure"`` a column is *sure* where, besides, the columns left
    behave like causes of y and nine of ten halves of the rows agree. Exact copies of y (the same
    order of the rows) and pairs of columns whose sum is y are left out as well; near copies are
    kept, and ``fit`` warns of them (`LeakWarning`).

    It does not test for truncation, nor for rows selected by a process that left no column tied to
    y; nor can it judge where the other columns tell nothing of y: `verdict_` names such columns.

    Args:
        drop: The weakest suspicion on which a column is left out: ``"strong"``, ``"suspects"`` or
            ``"sure"``. The project's page "Does my table leak?" has what each finds, and costs.
        keep: Columns that are never dropped, by name (if X has names) or by position; one of them,
            or several.
        target: ``"number"``, ``"class"``, or ``"auto"``: a class if y is not numeric, has two
            values only, or whole numbers 0, 1, … of at most ten values.
        random_state: Seed of the rows that are judged where there are more than 100,000, and of the
            halves of the rows. A number by default, so that the same table gets the same verdict.

    Attributes:
        screening_: The evidence; `explain` shows it as a table, `plot` as a plot.
        target_: What y was taken for, ``"number"`` or ``"class"``.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import LeakScreen
        >>> table = make_mmads(1000, 10, 1.7, seed=0).frame()
        >>> screen = LeakScreen().fit(table.drop(columns="y"), table["y"])
        >>> screen.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5', 'V2', 'V3', 'V4', 'V5']
        >>> screen.explain().loc["V1", "decision"]
        'follows the label'
    """

    _parameters: ClassVar[Mapping[str, Parameter]] = {
        "drop": one_of(*screening.LEVELS),
        "target": one_of("auto", "number", "class"),
    }

    def __init__(
        self,
        *,
        drop: screening.Drop = "strong",
        keep: str | int | Sequence[str | int] | None = None,
        target: Literal["auto", "number", "class"] = "auto",
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.drop = drop
        self.keep = keep
        self.target = target
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> LeakScreen:
        """Screen columns X of shape (n, p) by a label y of shape (n,).

        Args:
            X: The columns. Values may be missing: the middle value takes their place while the
                columns are judged, and a column in which more than a fifth is missing is not
                judged.
            y: The label.
            sample_weight: Weight of each row.
            groups: Environment of each row: region, year, hospital. They add evidence that one
                sample cannot give: a column goes as well if its relation to y differs between
                environments and least squares predicts environments that it has not seen better
                without it.
        """
        check_parameters(self, self._parameters)
        X, y = check_table(self, X, y, allow_nan=True)
        weight = check_weights(sample_weight, len(X))
        environments = None if groups is None else check_groups(groups, len(X)).astype(str)
        table = screening.Table(
            X=X,
            y=y,
            weight=weight,
            number=self._is_number(y),
            unjudged=self._unjudged(X),
            protected=self._protected(),
        )
        counted = weight > 0
        if not counted.all():
            table = table.rows(counted)
            environments = None if environments is None else environments[counted]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        result = screening.screen_table(table, drop=self.drop, seed=seed)
        if environments is not None and len(np.unique(table.y)) > 1:
            compare_environments(result, table, environments)
        self.screening_ = result
        if message := warning(result, column_names(self)):
            # The caller of fit, which is wrapped
            warnings.warn(message, LeakWarning, stacklevel=3)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the columns that were kept: an array, or what ``set_output`` asked for."""
        check_is_fitted(self)
        check_rows(self, X, allow_nan=True)
        kept: FloatArray = super().transform(X)
        return kept

    def explain(self) -> pd.DataFrame:
        """Return what was found of each column, the most suspicious first.

        Returns:
            One row per column: ``decision``; ``grade``, how strong the suspicion is; ``because``,
            why it is not strong; then the figures, of ranks: ``label``, the share of the column
            that y explains; ``m``, the share that the other columns explain; ``k``, the same once y
            is known; ``ratio`` = k/m; ``share``, how much of all that can be explained of the
            column y explains alone; ``relevance``, p-value of "it adds nothing to the other
            columns"; with ``drop="sure"``, ``survival``, in which share of the halves of the rows
            it surely follows y; with environments, ``changes``, p-value of "its slope is the same
            in all environments".
        """
        import pandas as pd

        check_is_fitted(self)
        result = self.screening_
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = result.k / result.m
        columns: dict[str, Any] = {
            "decision": result.decision.astype(str),
            "grade": [screening.GRADES[grade] for grade in result.grade],
            "because": result.reasons.astype(str),
            "label": result.label,
            "m": result.m,
            "k": result.k,
            "ratio": ratio,
            "share": result.share,
            "relevance": result.relevance,
        }
        if self.drop == "sure":
            columns["survival"] = result.survival
        if result.environments is not None:
            columns["changes"] = result.environments.changes
        table = pd.DataFrame(columns, index=pd.Index(column_names(self), name="column"))
        return table.iloc[self._by_suspicion()]

    @property
    def suspects_(self) -> pd.DataFrame:
        """The columns under suspicion, the strongest first: ``grade``, ``decision`` and ``reason``,
        in sentences.
        """
        table = self.explain()
        reasons = [
            reason(self.screening_, j) for j in self._by_suspicion() if self.screening_.grade[j]
        ]
        return table.loc[(table["grade"] != "").to_numpy(), ["grade", "decision"]].assign(
            reason=reasons
        )

    @property
    def verdict_(self) -> str:
        """The outcome in a few sentences that name the columns and say what to do."""
        check_is_fitted(self)
        return verdict(self.screening_, column_names(self))

    def plot(self, ax: Any = None) -> Any:
        """Draw m against k for every column that could be judged, in the colour of its decision,
        and name the first 40.

        Args:
            ax: Matplotlib axes to draw on; new ones by default.

        Returns:
            The axes.
        """
        import matplotlib.pyplot as plt

        table = self.explain()
        table = table[table["m"].notna()]
        if ax is None:
            _, ax = plt.subplots(figsize=(6.8, 4.8), layout="constrained")
            ax.set_title(textwrap.fill(self.verdict_, 72), fontsize="medium", loc="left")
        for decision, colour in _COLOURS.items():
            chosen = table[table["decision"] == decision]
            if len(chosen):
                ax.plot(chosen["m"], chosen["k"], "o", color=colour, markersize=5, label=decision)
        beside: Any = {
            "xytext": (4, 3),
            "textcoords": "offset points",
            "fontsize": 7.5,
            "parse_math": False,
        }
        for name, row in table.head(_POINTS_NAMED).iterrows():
            words = f"{name} ({row['grade']})" if row["grade"] else str(name)
            ax.annotate(printable(words), (row["m"], row["k"]), **beside)
        for slope, dash in ((1.0, "--"), (leaks.MOST_RATIO, ":")):
            words = "k = m" if slope == 1.0 else f"k = {slope} m"
            grey = _COLOURS[screening.ISOLATED]
            ax.axline((0.0, 0.0), slope=slope, color=grey, ls=dash, linewidth=1.2, label=words)
        ax.set_xlabel("m: share of the column that the others explain")
        ax.set_ylabel("k: the same once the label is known")
        ax.legend(fontsize="small", loc="best")
        return ax

    def _by_suspicion(self) -> IndexArray:
        """Return the columns in the order of suspicion."""
        grade = self.screening_.grade
        return np.lexsort([-np.where(grade > 0, np.nan_to_num(self.screening_.share), 0.0), -grade])

    def _get_support_mask(self) -> Mask:
        check_is_fitted(self)
        return self.screening_.kept

    def _is_number(self, y: NDArray[Any]) -> bool:
        """Return whether the label is a number; keep what it was taken for."""
        number = self.target == "number"
        if self.target == "auto":
            number = y.dtype.kind in "iuf" and not _are_codes(y)
        self.target_ = "number" if number else "class"
        if not number:
            check_classification_targets(y)
        return number

    def _unjudged(self, X: FloatArray) -> NDArray[np.object_]:
        """Return the decision on columns that are not to be judged, empty for the others."""
        unjudged = np.full(X.shape[1], "", dtype=object)
        for j, name in enumerate(column_names(self)):
            if identifies_rows(X[:, j], name):
                unjudged[j] = screening.IDENTIFIER
        if len(X):
            unjudged[np.isnan(X).mean(axis=0) > _MOST_MISSING] = screening.MISSING
        return unjudged

    def _protected(self) -> Mask:
        """Return the mask of the columns to keep."""
        names = column_names(self)
        protected = np.zeros(len(names), dtype=bool)
        if self.keep is None:
            return protected
        for column in np.atleast_1d(np.asarray(self.keep, dtype=object)):
            place = names.index(column) if column in names else column
            is_position = isinstance(place, (int, np.integer)) and not isinstance(place, bool)
            if not is_position or not -len(names) <= place < len(names):
                raise ValueError(
                    f"keep holds {column!r}; give names of columns of X ({', '.join(names)}), or"
                    f" positions below {len(names)}."
                )
            protected[place] = True
        return protected

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags


class SelectionScreen(LeakScreen):
    """`LeakScreen` under its former name and with its former default, ``drop="sure"``.

    Deprecated: what the screen finds are columns that behave like effects of the label, of which
    selection of the rows is one cause of three.
    """

    def __init__(
        self,
        *,
        drop: screening.Drop = "sure",
        keep: str | int | Sequence[str | int] | None = None,
        target: Literal["auto", "number", "class"] = "auto",
        random_state: int | RandomState | None = 0,
    ) -> None:
        super().__init__(drop=drop, keep=keep, target=target, random_state=random_state)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> LeakScreen:
        """Screen columns X of shape (n, p) by a label y of shape (n,)."""
        warnings.warn(
            "SelectionScreen is LeakScreen(drop='sure') now, and its name will go.",
            FutureWarning,
            stacklevel=2,
        )
        return super().fit(X, y, sample_weight=sample_weight, groups=groups)


def _are_codes(y: NDArray[Any]) -> bool:
    """Return whether numbers are the codes of classes: two values, or the first whole numbers."""
    values = np.unique(y)
    if len(values) <= 2 and len(y) > 2:
        return True
    whole = y.dtype.kind in "iu" and len(values) <= _MOST_CODES
    return bool(whole and np.array_equal(values, np.arange(len(values))))
