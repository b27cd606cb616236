"""The label-conditional screening of `PFDLRegressor`, for class labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pfdl.tabular.base import ScreeningMixin
from pfdl.tabular.label import class_functions

FloatArray = NDArray[np.float64]


class PFDLClassifier(ScreeningMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier that leaves out columns tied to the class by the selection of the sample.

    The argument of `PFDLRegressor` carries over: given the class, a column that merely follows it has little left in
    common with the others, while the causes of the class collide in it. The class enters through its indicators. A
    class tells less than a number, so selection leaves weaker marks and more rows are needed to see it.

    Args:
        classifier: What is fitted to the kept columns; logistic regression by default.
        decomposition: See `PFDLRegressor`.
        alpha: See `PFDLRegressor`.
        share_threshold: See `PFDLRegressor`.
        ratio_threshold: See `PFDLRegressor`.
        hidden: See `PFDLRegressor`.
        learning_rate: See `PFDLRegressor`.
        batch_size: See `PFDLRegressor`.
        max_steps: See `PFDLRegressor`.
        random_state: See `PFDLRegressor`.

    Attributes:
        classes_: The classes.
        classifier_: The classifier, fitted to the kept columns.
        screening_: The evidence; `explain` shows it as a table, `plot_explanation` as a plot.
        kept_: Mask of the columns in use.
        verdict_: The outcome of the screening as a sentence.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.
    """

    def __init__(
        self,
        classifier: BaseEstimator | None = None,
        *,
        decomposition: str = "linear",
        alpha: float = 0.01,
        share_threshold: float = 0.5,
        ratio_threshold: float = 0.75,
        hidden: tuple[int, ...] = (64,),
        learning_rate: float = 0.01,
        batch_size: int = 128,
        max_steps: int = 5000,
        random_state: Any = None,
    ) -> None:
        self.classifier = classifier
        self.decomposition = decomposition
        self.alpha = alpha
        self.share_threshold = share_threshold
        self.ratio_threshold = ratio_threshold
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PFDLClassifier:
        """Fit to columns X of shape (n, p) and class labels y of shape (n,)."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_ = encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"There is one class only, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )
        self.screening_ = self._screen(X, class_functions(encoder.transform(y), len(self.classes_)))
        self.kept_ = self.screening_.kept
        if not self.kept_.any():  # every column is constant: leave the class frequencies to the classifier
            self.kept_ = np.ones(X.shape[1], dtype=bool)
        base = LogisticRegression(max_iter=1000) if self.classifier is None else clone(self.classifier)
        self.classifier_ = base.fit(X[:, self.kept_], y)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of the rows of X."""
        kept = self._kept_columns(X)
        predicted: NDArray[Any] = self.classifier_.predict(kept)
        return predicted

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities, of shape (n, classes)."""
        kept = self._kept_columns(X)
        probability: FloatArray = self.classifier_.predict_proba(kept)
        return probability

    def _kept_columns(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        kept: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)[:, self.kept_]
        return kept
