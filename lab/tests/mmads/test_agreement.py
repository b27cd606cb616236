"""What is said of agreement follows from the numbers."""

from __future__ import annotations

import pandas as pd

from pfdl.report.blocks import Section
from pfdl_lab.mmads.agreement import agreement
from pfdl_lab.mmads.paper import CALIBRATION, CELLS, PAPER
from pfdl_lab.mmads.section import METRIC_NAMES
from pfdl_lab.report.markdown import render


def results_like(table, methods, spread: float) -> pd.DataFrame:
    """Two seeds around the figures of a table."""
    return pd.DataFrame(
        {
            "setting": "independent",
            "n": n,
            "p": p,
            "r": r,
            "seed": seed,
            "num_test": 10,
            "method": method,
            "metric": metric,
            "value": value + spread * (seed - 0.5),
        }
        for method in methods
        for metric, values in table[method].items()
        for (n, p, r), value in zip(CELLS, values, strict=True)
        for seed in (0, 1)
    )


def page_of(results) -> str:
    return render([Section("", agreement(results, METRIC_NAMES))]).text


def test_agreement_is_reported_as_such():
    methods = ["OLS", "Lasso", "Ridge", "DWR"]
    assert "Nowhere by more than two" in page_of(results_like(PAPER, methods, 0.01))
    page = page_of(results_like(CALIBRATION, methods, 0.01))
    assert "Of 84 figures of OLS, Lasso, Ridge and DWR, 84 lie within two standard errors" in page


def test_disagreement_is_listed_figure_by_figure():
    results = results_like(CALIBRATION, ["OLS"], 0.001)
    results.loc[(results.n == 1000) & (results.metric == "ae"), "value"] += 0.1
    page = page_of(results)
    assert "20 lie within" in page
    assert "OLS at n=1000 p=10 r=1.7, AE: 0.680 here, 0.580 there" in page
    assert "| OLS, n=1000 p=10 r=1.7 | AE | 0.680 ± 0.001 | 0.604 |" in page
