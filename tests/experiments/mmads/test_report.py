"""What the page says follows from the numbers."""

from __future__ import annotations

import pandas as pd

from pfdl.experiments.mmads.figures import CALIBRATION, CELLS, METRICS, PAPER
from pfdl.experiments.mmads.report import table_page


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
        for (n, p, r), values in zip(CELLS, table[method], strict=True)
        for metric, value in zip(METRICS, values, strict=True)
        for seed in (0, 1)
    )


def test_agreement_is_reported_as_such():
    methods = ["OLS", "Lasso", "Ridge", "DWR"]
    assert "Nowhere by more than two" in table_page(results_like(PAPER, methods, 0.01), "command")
    page = table_page(results_like(CALIBRATION, methods, 0.01), "command")
    assert "Of 84 figures of OLS, Lasso, Ridge and DWR, 84 lie within two standard errors" in page


def test_disagreement_is_listed_figure_by_figure():
    results = results_like(CALIBRATION, ["OLS"], 0.001)
    results.loc[(results.n == 1000) & (results.metric == "ae"), "value"] += 0.1
    page = table_page(results, "command")
    assert "20 lie within" in page
    assert "- OLS at n=1000 p=10 r=1.7, AE: 0.680 here, 0.580 there" in page
    assert "| OLS | n=1000 p=10 r=1.7 | AE | 0.680±0.001 | 0.604 |" in page
