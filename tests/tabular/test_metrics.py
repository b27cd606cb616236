"""Metrics against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

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
    assert np.allclose(report.rmse, expected)
    assert report.average_error == pytest.approx(np.mean(expected))
    assert report.stability_error == pytest.approx(np.std(expected, ddof=1))
    assert (report.worst_group, report.worst_rmse) == (2001, pytest.approx(max(expected)))
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
