"""SRDO: Sample Reweighted Decorrelation Operator."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from pfdl.tabular.moments import FloatArray
from pfdl.tabular.weights import WeightedLeastSquares


class SRDORegressor(WeightedLeastSquares):
    """Weighted least squares under weights that make the table look like one with independent
    columns.

    Shen et al., "Stable Learning via Sample Reweighting", AAAI 2020. Every column is shuffled on
    its own, which keeps the marginals and breaks all dependence; a classifier learns to distinguish
    shuffled rows from real ones, and its odds are the density ratio by which real rows are
    weighted.

    Args:
        classifier: Any classifier with ``predict_proba``; by default scikit-learn's multilayer
            perceptron with hidden layers (100, 5) on standardised columns. From 100 rows of X on it
            stops early: a tenth of the real and shuffled rows is held out, and training ends once
            ten passes have not raised the accuracy on them. The paper leaves the classifier open.
        random_state: Seed of the shuffling and of the default classifier.

    Attributes:
        coef_: Coefficients, of shape (n_features,).
        intercept_: Intercept.
        classifier_: The fitted classifier.
        sample_weight_: The weights, with mean 1.
        effective_sample_size_: (Σw)² / Σw². Below a tenth of the rows, ``fit`` warns; it also warns
            where the fit is worse over all rows than the mean of y.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, *, classifier: BaseEstimator | None = None, random_state: Any = None
    ) -> None:
        self.classifier = classifier
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray) -> None:
        random = check_random_state(self.random_state)
        shuffled = np.column_stack([random.permutation(column) for column in X.T])
        if self.classifier is None:
            from sklearn.neural_network import MLPClassifier  # half a second of imports

            network = MLPClassifier(
                hidden_layer_sizes=(100, 5),
                early_stopping=len(X) >= 100,
                random_state=random.randint(2**31 - 1),
            )
            self.classifier_ = make_pipeline(StandardScaler(), network)
        else:
            self.classifier_ = clone(self.classifier)
        self.classifier_.fit(np.vstack([X, shuffled]), np.repeat([0, 1], len(X)))
        probability = self.classifier_.predict_proba(X)
        weight = probability[:, 1] / np.maximum(probability[:, 0], np.finfo(float).eps)
        self._fit_under(weight, X, y)
