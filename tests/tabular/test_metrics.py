"""Metrics against plain ones, environment by environment."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, log_loss

from pfdl.tabular.metrics import rmse, stability_report


def test_stability_report_for_any_table_and_grouping():
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"])
    y = table["a"] + rng.standard_normal(60) * np.repeat([0.1, 1.0, 0.5], 20)
    year = np.repeat([2003, 2001, 2002], 20)
    model = LinearRegression().fit(table, y)
    report = stability_report(model, table, y, year)
    expected = [
        rmse(y[year == name], model.predict(table[year == name])) for name in (2001, 2002, 2003)
    ]
    assert report.index.tolist() == [2001, 2002, 2003]
    assert report["rows"].tolist() == [20, 20, 20]
    assert np.allclose(report["rmse"], expected)
    for groups in (year[1:], [None, *year[1:]]):
        with pytest.raises(ValueError, match="groups name 59 environments for 60 rows"):
            stability_report(model, table, y, groups)


def test_a_classifier_is_judged_by_accuracy_and_log_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(90) > 0, "yes", "no")
    groups = np.repeat(["a", "b", "c"], 30)
    model = LogisticRegression().fit(X, y)
    report = stability_report(model, X, y, groups)
    for name in "abc":
        here = groups == name
        assert report.loc[name, "accuracy"] == pytest.approx(
            accuracy_score(y[here], model.predict(X[here]))
        )
        expected = log_loss(y[here], model.predict_proba(X[here]), labels=["no", "yes"])
        assert report.loc[name, "log_loss"] == pytest.approx(expected)
    without = stability_report(RidgeClassifier().fit(X, y), X, y, groups)
    assert without.columns.tolist() == ["rows", "accuracy"]


def test_weights_count_in_the_report():
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    report = stability_report(
        model, [[0.0], [0.0], [1.0]], [1.0, 3.0, 1.5], ["a", "a", "b"], sample_weight=[1, 0, 2]
    )
    assert report["rmse"].tolist() == pytest.approx([1.0, 0.5])
