"""Metrics against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, log_loss

from pfdl.tabular.metrics import average_error, beta_error, rmse, stability_error, stability_report


def test_beta_error_is_the_mean_absolute_difference():
    rng = np.random.default_rng(0)
    true, estimated = rng.standard_normal((2, 7))
    assert beta_error(true, estimated) == pytest.approx(
        sum(abs(t - e) for t, e in zip(true, estimated, strict=True)) / 7
    )
    with pytest.raises(ValueError, match="got 2 true and 3 estimated"):
        beta_error([0, 0], [0, 0, 0])
    with pytest.raises(ValueError, match="non-empty"):
        beta_error([], [])


def test_rmse_and_its_mean_and_spread():
    assert rmse([1.0, 2.0, 3.0], [1.0, 2.0, 5.0]) == pytest.approx((4 / 3) ** 0.5)
    errors = [0.2, 0.5, 1.1, 0.4]
    mean = sum(errors) / 4
    squares = sum((error - mean) ** 2 for error in errors)
    assert average_error(errors) == pytest.approx(mean)
    assert stability_error(errors) == pytest.approx((squares / 4) ** 0.5)
    assert stability_error(errors, ddof=1) == pytest.approx((squares / 3) ** 0.5)


def test_what_has_no_mean_or_spread_is_refused():
    with pytest.raises(ValueError, match="at least 2 environments are needed, got 1"):
        stability_error([0.3], ddof=1)
    with pytest.raises(ValueError, match=r"got \[\]"):
        average_error([])
    with pytest.raises(ValueError, match="finite"):
        average_error([0.1, float("nan")])


def test_stability_report_for_any_table_and_grouping():
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"])
    y = table["a"] + rng.standard_normal(60) * np.repeat([0.1, 1.0, 0.5], 20)
    year = np.repeat([2003, 2001, 2002], 20)
    model = LinearRegression().fit(table, y)
    report = stability_report(model, table, y, year, ddof=1)
    expected = [rmse(y[year == name], model.predict(table[year == name])) for name in (2001, 2002, 2003)]
    assert report.groups.tolist() == [2001, 2002, 2003]
    assert np.allclose(report.measures["rmse"], expected)
    assert report.average_error == pytest.approx(np.mean(expected))
    assert report.stability_error == pytest.approx(np.std(expected, ddof=1))
    assert (report.worst_group, report.worst) == (2001, pytest.approx(max(expected)))
    frame = report.frame()
    assert frame.loc[2002, "rows"] == 20
    assert frame.loc[2002, "rmse"] == pytest.approx(expected[1])
    assert "worst 2001" in repr(report)


def test_one_environment_has_no_spread_with_ddof_1():
    report = stability_report(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), [[0.0]], [1.0], ["here"], ddof=1)
    assert np.isnan(report.stability_error)
    assert report.worst_group == "here"


def test_groups_must_fit_the_rows():
    with pytest.raises(ValueError, match="inconsistent"):
        stability_report(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), [[0.0], [1.0]], [1.0, 2.0], ["a"])


def test_a_classifier_is_judged_by_accuracy_and_log_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(90) > 0, "yes", "no")
    groups = np.repeat(["a", "b", "c"], 30)
    model = LogisticRegression().fit(X, y)
    report = stability_report(model, X, y, groups)
    for place, name in enumerate("abc"):
        here = groups == name
        assert report.measures["accuracy"][place] == pytest.approx(accuracy_score(y[here], model.predict(X[here])))
        expected = log_loss(y[here], model.predict_proba(X[here]), labels=["no", "yes"])
        assert report.measures["log_loss"][place] == pytest.approx(expected)
    assert report.worst == report.measures["accuracy"].min()
    assert report.average_error == pytest.approx(1 - report.measures["accuracy"].mean())
    assert "accuracy" in str(report)
    without = stability_report(RidgeClassifier().fit(X, y), X, y, groups)
    assert set(without.measures) == {"accuracy"}


def test_weights_count_in_the_report_and_it_is_drawn():
    import matplotlib

    matplotlib.use("Agg")
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    report = stability_report(model, [[0.0], [0.0], [1.0]], [1.0, 3.0, 1.5], ["a", "a", "b"], sample_weight=[1, 0, 2])
    assert report.measures["rmse"] == pytest.approx([1.0, 0.5])
    axes = report.plot()
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1.0, 0.5])
    with pytest.raises(ValueError, match="environment 'b' has no weight"):
        stability_report(model, [[0.0], [1.0]], [1.0, 1.5], ["a", "b"], sample_weight=[1, 0])
