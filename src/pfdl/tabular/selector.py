"""The screening as a scikit-learn selector, to stand in front of any estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, column_or_1d

from pfdl._internal.fitting import all_or_nothing
from pfdl.tabular.environments import compare_environments
from pfdl.tabular.explaining import ExplainedScreening, strong_suspects_kept
from pfdl.tabular.moments import class_functions, number_functions
from pfdl.tabular.screening import IDENTIFIER, LEVELS, MISSING, Drop, Rules, screen_table
from pfdl.tabular.validation import check_rows, check_table, column_names, identifies_rows

FloatArray = NDArray[np.float64]

_MOST_MISSING = 0.2


class SelectionWarning(UserWarning):
    """A column stays in that the selection of the rows seems to have tied to the label."""


class SelectionScreen(ExplainedScreening, SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Leave out columns that follow y only because of how the rows were selected.

    It helps only if rows were *selected* by something near y. Selection that favours rows where a column V lies close
    to y makes V look like an effect of y. The screen predicts every column from the others twice, without and with y:
    given y, an effect has little left in common with the other columns, while causes of y have more in common (they
    collide in y). This is an extension of this project, not part of the PFDL paper. A genuine effect of y is dropped,
    too: one sample cannot distinguish it from a column that the selection ties to y. Cross-validation inside the
    selected sample cannot judge the screen, because there the column does predict.

    Suspicion is graded. A *suspect* looks like an effect of y; a *strong* suspect has, given y, nothing left in common
    with columns that do tell of y; a follower is *sure* where the columns left behave like causes of y and nine of
    ten halves of the rows agree. Where a strong suspect stays in, ``fit`` warns (`SelectionWarning`). Of classes,
    suspicion is never strong: columns are effects of a class more often than of a number.

    Args:
        drop: The weakest suspicion on which a column is left out: ``"sure"``, ``"strong"`` or ``"suspects"``. On real
            tables (the project's page "Real tables") *sure* drops hardly ever, and *strong* most of the columns that a
            selection ties to y, with a wrong one in about one of a hundred tables.
        keep: Columns that are never dropped, by name (if X has names) or by position; one of them, or several.
        target: ``"number"``, ``"class"``, or ``"auto"``: a class if y is not numeric, or has two values only.
        alpha: Level of the significance tests, divided by the number of columns.
        share_threshold: A column is a suspect where y alone explains more than this share of what can be explained of
            it,
        ratio_threshold: and k/m lies below this.
        resamples: Halves of the rows that are screened as well before a suspicion is sure.
        random_state: Seed of the resampling. A number by default, so that the same table gets the same verdict.

    Attributes:
        screening_: The evidence; `explain` shows it as a table, `plot` as a plot.
        suspects_: The columns under suspicion, as a frame: ``grade``, ``decision`` and ``reason``.
        target_: What y was taken for, ``"number"`` or ``"class"``.
        verdict_: The outcome in a sentence.
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

    def __init__(
        self,
        *,
        drop: Drop = "sure",
        keep: str | int | Sequence[str | int] | None = None,
        target: Literal["auto", "number", "class"] = "auto",
        alpha: float = 0.01,
        share_threshold: float = 0.5,
        ratio_threshold: float = 0.6,
        resamples: int = 20,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.drop = drop
        self.keep = keep
        self.target = target
        self.alpha = alpha
        self.share_threshold = share_threshold
        self.ratio_threshold = ratio_threshold
        self.resamples = resamples
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> SelectionScreen:
        """Screen columns X of shape (n, p) by a label y of shape (n,).

        Args:
            X: The columns. Values may be missing: the columns are judged on the rows that are complete, apart from
                columns in which more than a fifth is missing, which are not judged.
            y: The label.
            sample_weight: Weight of each row.
            groups: Environment of each row: region, year, hospital. They add evidence that one sample cannot give: a
                column goes as well if its relation to y differs between environments and least squares predicts
                environments that it has not seen better without it.
        """
        self._check_parameters()
        X, y = check_table(self, X, y, allow_nan=True)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        has_groups = groups is not None
        groups = column_or_1d(np.asarray(groups) if has_groups else np.zeros(len(X))).astype(str)
        check_consistent_length(X, groups)
        self.target_ = self._kind(y)
        names, protected = column_names(self), self._protected()
        unjudged = np.array(
            [IDENTIFIER if identifies_rows(*one) else "" for one in zip(X.T, names, strict=True)], object
        )
        holes = np.isnan(X)
        mostly = holes.mean(axis=0) > _MOST_MISSING
        unjudged[mostly] = MISSING
        rows = (weight > 0) & ~holes[:, ~mostly].any(axis=1)
        label = self._label(y)
        if mostly.any() or not rows.all():
            X, label, weight, groups = np.where(mostly, 0.0, X)[rows], label[rows], weight[rows], groups[rows]
        rules = Rules(
            alpha=self.alpha,
            share_threshold=self.share_threshold,
            ratio_threshold=self.ratio_threshold,
            resamples=self.resamples,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            label_is_number=self.target_ == "number",
        )
        found = screen_table(X, label, weight, rules, drop=self.drop, protected=protected, unjudged=unjudged)
        if has_groups and label.shape[1]:
            found = compare_environments(found, X, label[:, : rules.goal], groups, weight, protected, self.alpha)
        self.screening_ = found
        if message := strong_suspects_kept(found, names):
            warnings.warn(message, SelectionWarning, stacklevel=3)  # the caller of fit, which is wrapped
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the columns that were kept: an array, or what ``set_output`` asked for."""
        check_is_fitted(self)
        check_rows(self, X, allow_nan=True)
        kept: FloatArray = super().transform(X)
        return kept

    def _fitted_screen(self) -> SelectionScreen:
        check_is_fitted(self)
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        return self._fitted_screen().screening_.kept

    def _check_parameters(self) -> None:
        for name, choices in {"drop": tuple(LEVELS), "target": ("auto", "number", "class")}.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose {', '.join(map(repr, choices))}.")
        for name in ("alpha", "share_threshold", "ratio_threshold"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1.")
        if self.resamples < 1:
            raise ValueError(f"resamples is {self.resamples}; it must be at least 1.")

    def _label(self, y: Any) -> FloatArray:
        """Return functions of the label."""
        if self.target_ == "number":
            return number_functions(y)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        return class_functions(encoder.transform(y), len(encoder.classes_))

    def _kind(self, y: Any) -> str:
        if self.target != "auto":
            return self.target
        values = np.asarray(y)
        return "number" if values.dtype.kind in "iuf" and len(np.unique(values)) > 2 else "class"

    def _protected(self) -> NDArray[np.bool_]:
        protected = np.zeros(self.n_features_in_, dtype=bool)
        names = column_names(self)
        keep = [] if self.keep is None else [self.keep] if isinstance(self.keep, (str, int, np.integer)) else self.keep
        for column in keep:
            if isinstance(column, str):
                if column not in names:
                    raise ValueError(f"keep names the column {column!r}, which X does not have; it has {names}.")
                protected[names.index(column)] = True
            elif isinstance(column, (int, np.integer)) and -len(names) <= column < len(names):
                protected[column] = True
            else:
                raise ValueError(f"keep holds {column!r}; give names of columns, or positions below {len(names)}.")
        return protected

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags
