"""The screening as a scikit-learn selector, to stand in front of any estimator."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from pfdl._internal.text import printable
from pfdl.tabular import screening
from pfdl.tabular.environments import compare_environments
from pfdl.tabular.explaining import reason, strong_suspects_kept, verdict
from pfdl.tabular.moments import FloatArray, IndexArray, Mask, class_functions, number_functions
from pfdl.tabular.validation import (
    all_or_nothing,
    check_groups,
    check_rows,
    check_table,
    column_names,
    identifies_rows,
)

if TYPE_CHECKING:
    import pandas as pd


_MOST_MISSING, _POINTS_NAMED = 0.2, 40
# Colours of the library's pages, which exchange them in the dark.
_COLOURS = {
    screening.KEPT: "#0b6bb5",
    screening.SUSPICIOUS: "#a8781a",
    screening.AS_ASKED: "#a8781a",
    screening.FOLLOWS_LABEL: "#b8501a",
    screening.CHANGES: "#8a3fa0",
    screening.ISOLATED: "#5f6670",
}


class SelectionWarning(UserWarning):
    """A column stays in that the selection of the rows seems to have tied to the label."""


class SelectionScreen(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Leave out columns that follow y only because of how the rows were selected.

    It helps only if rows were *selected* by something near y. Selection that favours rows where a
    column V lies close to y makes V look like an effect of y. The screen predicts every column from
    the others twice, without and with y: given y, an effect has little left in common with the
    other columns, while causes of y have more in common (they collide in y). This is an extension
    of this project, not part of the PFDL paper. A genuine effect of y is dropped,
    too: one sample cannot distinguish it from a column that the selection ties to y.
    Cross-validation inside the selected sample cannot judge the screen, because there the column
    does predict.

    Suspicion is graded. A *suspect* looks like an effect of y; a *strong* suspect has, given y,
    nothing left in common with columns that do tell of y; a follower is *sure* where the columns
    left behave like causes of y and nine of ten halves of the rows agree. Where a strong suspect
    stays in, ``fit`` warns (`SelectionWarning`). Of classes, suspicion is never strong: columns are
    effects of a class more often than of a number.

    Args:
        drop: The weakest suspicion on which a column is left out: ``"sure"``, ``"strong"`` or
            ``"suspects"``. On real tables (the project's page "Real tables") *sure* drops hardly
            ever, and *strong* most of the columns that a selection ties to y, with a wrong one in
            about one of a hundred tables.
        keep: Columns that are never dropped, by name (if X has names) or by position; one of them,
            or several.
        target: ``"number"``, ``"class"``, or ``"auto"``: a class if y is not numeric, or has two
            values only.
        random_state: Seed of the halves of the rows. A number by default, so that the same table
            gets the same verdict.

    Attributes:
        screening_: The evidence; `explain` shows it as a table, `plot` as a plot.
        target_: What y was taken for, ``"number"`` or ``"class"``.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import SelectionScreen
        >>> table = make_mmads(1000, 10, 1.7, seed=0).frame()
        >>> screen = SelectionScreen().fit(table.drop(columns="y"), table["y"])
        >>> screen.get_feature_names_out().tolist()
        ['S1', 'S2', 'S3', 'S4', 'S5']
        >>> screen.explain().loc["V1", "decision"]
        'follows the label'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "drop": [StrOptions(set(screening.LEVELS))],
        "target": [StrOptions({"auto", "number", "class"})],
    }

    def __init__(
        self,
        *,
        drop: screening.Drop = "sure",
        keep: str | int | Sequence[str | int] | None = None,
        target: Literal["auto", "number", "class"] = "auto",
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.drop = drop
        self.keep = keep
        self.target = target
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> SelectionScreen:
        """Screen columns X of shape (n, p) by a label y of shape (n,).

        Args:
            X: The columns. Values may be missing: the columns are judged on the rows that are
                complete, apart from columns in which more than a fifth is missing, which are not
                judged.
            y: The label.
            sample_weight: Weight of each row.
            groups: Environment of each row: region, year, hospital. They add evidence that one
                sample cannot give: a column goes as well if its relation to y differs between
                environments and least squares predicts environments that it has not seen better
                without it.
        """
        self._validate_params()
        X, y = check_table(self, X, y, allow_nan=True)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        has_groups = groups is not None
        groups = check_groups(groups if has_groups else np.zeros(len(X)), len(X)).astype(str)
        label, number = self._label_functions(y)
        names, protected = column_names(self), self._protected()
        identifiers = [
            identifies_rows(column, name) for column, name in zip(X.T, names, strict=True)
        ]
        unjudged = np.where(identifiers, screening.IDENTIFIER, "").astype(object)
        holes = np.isnan(X)
        mostly = holes.mean(axis=0) > _MOST_MISSING
        unjudged[mostly] = screening.MISSING
        rows = (weight > 0) & ~holes[:, ~mostly].any(axis=1)
        if mostly.any() or not rows.all():
            X, label, weight, groups = (
                np.where(mostly, 0.0, X)[rows],
                label[rows],
                weight[rows],
                groups[rows],
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = screening.screen_table(
            X,
            label,
            weight,
            number=number,
            seed=seed,
            drop=self.drop,
            protected=protected,
            unjudged=unjudged,
        )
        if has_groups and label.shape[1]:
            found = compare_environments(
                found, X, label[:, :1] if number else label, groups, weight, protected
            )
        self.screening_ = found
        if message := strong_suspects_kept(found, names):
            # The caller of fit, which is wrapped
            warnings.warn(message, SelectionWarning, stacklevel=3)
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
            One row per column: ``decision``; ``grade``, how strong the suspicion is; then the
            figures: ``m``, the share of the column that the other columns explain; ``k``, the same
                once y is known; ``ratio`` = k/m; ``share``,
            how much of all that can be explained of the column y explains alone; ``relevance``,
            p-value of "it adds nothing to the other columns"; ``survival``, in which share of the
            halves of the rows it surely follows y as well; with environments, ``changes``, p-value
            of "its slope is the same in all environments".
        """
        import pandas as pd

        check_is_fitted(self)
        found = self.screening_
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = found.k / found.m
        table = pd.DataFrame(
            {
                "decision": found.decision.astype(str),
                "grade": [screening.GRADES[grade] for grade in found.grade],
                "m": found.m,
                "k": found.k,
                "ratio": ratio,
                "share": found.share,
                "relevance": found.relevance,
                "survival": found.survival,
                **({} if found.environments is None else {"changes": found.environments.changes}),
            },
            index=pd.Index(column_names(self), name="column"),
        )
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
            if len(chosen := table[table["decision"] == decision]):
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
        grey, ratio = _COLOURS[screening.ISOLATED], screening.RATIO_THRESHOLD
        for slope, words, dash in ((1.0, "k = m", "--"), (ratio, f"k = {ratio} m", ":")):
            ax.axline(
                (0.0, 0.0), slope=slope, color=grey, linestyle=dash, linewidth=1.2, label=words
            )
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

    def _label_functions(self, y: NDArray[Any]) -> tuple[FloatArray, bool]:
        """Return functions of the label, and whether it is a number; keep what it was taken for."""
        number = (
            y.dtype.kind in "iuf" and len(np.unique(y)) > 2
            if self.target == "auto"
            else self.target == "number"
        )
        self.target_ = "number" if number else "class"
        if number:
            return number_functions(y), True
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return class_functions(codes, len(classes)), False

    def _protected(self) -> Mask:
        """Return the mask of the columns to keep."""
        names = column_names(self)
        protected = np.zeros(len(names), dtype=bool)
        for column in (
            [] if self.keep is None else np.atleast_1d(np.asarray(self.keep, dtype=object))
        ):
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
