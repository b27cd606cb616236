"""Rival rules: each gives every column a score, the higher the more it looks like a leak.

Their thresholds are not used: each is given the one at which it alarms as often as the screen.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.inspection import permutation_importance
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

FloatArray = NDArray[np.float64]
Score = Callable[[pd.DataFrame, pd.Series], FloatArray]
MOST_ROWS = 2000


def _largest(X: pd.DataFrame, labels: pd.DataFrame) -> FloatArray:
    """Return the largest |correlation| of each column with one of the labels."""
    by_label = [X.corrwith(labels[name]).abs() for name in labels]
    return np.asarray(np.max(by_label, axis=0))


def _labels(y: pd.Series) -> pd.DataFrame:
    """Return a number as it is, and classes as indicators, one column each."""
    return y.to_frame() if y.dtype.kind == "f" else pd.get_dummies(y, dtype=float)


def correlation(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Return |r| with the label; with several classes, the largest over their indicators."""
    return _largest(X, _labels(y))


def rank_correlation(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Return the same of ranks."""
    return _largest(X.rank(), _labels(y).rank())


def mutual_information(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Return mutual information with the label, from nearest neighbours."""
    estimate = mutual_info_regression if y.dtype.kind == "f" else mutual_info_classif
    return np.asarray(estimate(X.to_numpy(), y.to_numpy(), random_state=0))


def evalml(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Transcribe evalml's TargetLeakageDataCheck: the largest of its measures of dependence.

    It alarms at 0.95 of mutual information, scaled by sqrt(1 - exp(-2 I)), or of |correlation|.
    """
    scaled = np.sqrt(1.0 - np.exp(-2.0 * mutual_information(X, y)))
    largest: FloatArray = np.max([scaled, correlation(X, y), rank_correlation(X, y)], axis=0)
    return largest


def predictive_power(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Transcribe the score of deepchecks' feature-label correlation: what a tree on one column
    gains over the median, or over the most frequent class, in four folds.
    """
    scores = []
    for _, column in X.items():
        if y.dtype.kind == "f":
            predicted = cross_val_predict(DecisionTreeRegressor(), column.to_frame(), y, cv=4)
            naive = np.abs(y - y.median()).mean()
            scores.append(1.0 - np.abs(y - predicted).mean() / max(naive, 1e-300))
            continue
        predicted = cross_val_predict(DecisionTreeClassifier(), column.to_frame(), y, cv=4)
        most_frequent = np.full(len(y), y.mode()[0])
        naive = f1_score(y, most_frequent, average="weighted")
        gain = f1_score(y, predicted, average="weighted") - naive
        scores.append(gain / max(1.0 - naive, 1e-12))
    return np.asarray(np.maximum(np.array(scores), 0.0))


def permutation(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Return the share of boosting's accuracy that is lost when a column is shuffled."""
    half = len(X) // 2
    order = np.random.default_rng(0).permutation(len(X))
    train = order[:half]
    test = order[half:]
    boosting = (
        HistGradientBoostingRegressor if y.dtype.kind == "f" else HistGradientBoostingClassifier
    )
    model = boosting(max_iter=40, random_state=0).fit(X.iloc[train], y.iloc[train])
    lost = permutation_importance(model, X.iloc[test], y.iloc[test], n_repeats=1, random_state=0)
    return np.asarray(lost.importances_mean)


def targetleak(X: pd.DataFrame, y: pd.Series) -> FloatArray:
    """Return what the package targetleak says: 2 for a critical finding, 1 for a warning."""
    from targetleak import analyse  # type: ignore[import-not-found]

    names = [f"c{j}" for j in range(X.shape[1])]
    table = X.set_axis(names, axis=1).assign(target=y.to_numpy())
    with contextlib.redirect_stdout(io.StringIO()):
        findings = analyse(table, "target")
    found = findings[0] if isinstance(findings, tuple) else findings
    scores = dict.fromkeys(names, 0.0)
    for finding in found:
        if finding.column in scores:
            severity = {"critical": 2.0, "warning": 1.0}.get(finding.severity, 0.0)
            scores[finding.column] = max(scores[finding.column], severity)
    return np.array(list(scores.values()))


QUICK: dict[str, Score] = {"|correlation|": correlation, "|rank correlation|": rank_correlation}
SLOW: dict[str, Score] = {
    "mutual information": mutual_information,
    "evalml's rule": evalml,
    "deepchecks' predictive power": predictive_power,
    "permutation importance": permutation,
}
if importlib.util.find_spec("targetleak") is not None:
    SLOW["targetleak"] = targetleak


def scores(X: pd.DataFrame, y: pd.Series, *, slow: bool) -> dict[str, FloatArray]:
    """Return the score of every column by every rival; the slow ones see 2,000 rows at most."""
    found = {name: score(X, y) for name, score in QUICK.items()}
    if not slow:
        return found
    if len(X) > MOST_ROWS:
        X = X.sample(MOST_ROWS, random_state=0)
        y = y.loc[X.index]
    for name, score in SLOW.items():
        try:
            found[name] = score(X, y)
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            found[name] = np.zeros(X.shape[1])
    return found
