"""The benchmark: leaks put into real tables, alarms on tables as they are, costs of dropping."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

from pfdl.runs import claim
from pfdl.tabular import LeakScreen
from pfdl.tabular.screening import COPY, GRADES, LEFT_OUT, PAIR
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.leaks import rivals
from pfdl_lab.leaks.factors import DRAWN, draw_table, drawn_names
from pfdl_lab.leaks.laws import EXACT, LAWS, STRENGTHS, Leak, leak
from pfdl_lab.leaks.tables import Half, Kind, RealTable, open_table, read_tables
from pfdl_lab.workers import IN_SEQUENCE, Execution

Record = dict[str, Any]

KIND = "leaks"
LEAST_ROWS_FOR_A_LEAK = 300
#: One strength below this and one from it are drawn for each law and table.
STRONG_FROM = 0.6
#: For which laws slow rivals and costs are asked; slow ones, and costs of classes, on one table
#: of so many.
SLOW_TABLES = 6
SLOW_LAWS = ("consequence", "binary")
COST_LAWS = ("consequence", "rounded", "binary", "selected, paper's law", "selected, band")
MOST_ROWS_OF_A_CLASSIFIER = 3000
#: Where the honest columns tell all of the label, smaller errors count as this, in its deviations.
LEAST_ERROR = 0.05


@dataclass(frozen=True)
class LeaksConfig:
    """What is run.

    Attributes:
        half: The tables: ``report``, or ``design``, on which the rules were chosen.
        tables: At most so many real tables of each kind; None for all.
        drawn: How many tables whose columns share factors, of each kind.
        slow: Whether to ask the slow rivals.
    """

    half: Half = "report"
    tables: int | None = None
    drawn: int = 100
    slow: bool = True


QUICK = LeaksConfig(tables=8, drawn=8, slow=False)


def run(config: LeaksConfig, output: Path, execution: Execution = IN_SEQUENCE) -> pd.DataFrame:
    """Judge the tables that are missing, and write ``results.csv``.

    Args:
        config: What is run.
        output: The run folder.
        execution: Where the tables are judged, and how many at a time.

    Returns:
        One line for each table as it is, each leak, and the costs of some; which of these it is
        says the column ``table``.
    """
    settings = {**asdict(config), "command": execution.command}
    with claim(output, KIND, settings, may_change=("tables", "drawn", "command")):
        results = run_grid(judge_table, tasks(config), output / "cells", execution)
        finish(results, output, "cells", float_format="%.4g")
    return results


def tasks(config: LeaksConfig) -> list[Record]:
    """Return one task for each real table of the half, of both kinds, and for each of those whose
    columns share factors.
    """
    kinds: tuple[Kind, ...] = ("number", "class")
    found = []
    for kind in kinds:
        names = [table.name for table in islice(read_tables(kind, config.half), config.tables)]
        for name in [*names, *drawn_names(config.drawn)]:
            slow = config.slow and zlib.crc32(name.encode()) % SLOW_TABLES == 0
            found.append({"kind": kind, "half": config.half, "item": name, "slow": slow})
    return found


def judge_table(kind: Kind, half: Half, item: str, slow: bool) -> list[Record]:
    """Screen one table as it is, and with leaks in it."""
    is_drawn = item.startswith(f"{DRAWN}/")
    return judge(draw_table(kind, half, item) if is_drawn else open_table(kind, half, item), slow)


def judge(table: RealTable, slow: bool) -> list[Record]:
    """Return a line for a table as it is, and lines for each leak in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        untouched = _untouched(table, slow)
        records = [{"table": "untouched", **untouched}]
        known = [name for name in untouched["arithmetic"].split(" | ") if name]
        table = replace(table, X=table.X.drop(columns=known))
        large = len(table.X) >= LEAST_ROWS_FOR_A_LEAK and table.X.shape[1] >= 2
        if table.source == DRAWN or not large:
            return records
        for found in leaks_of(table):
            records.append({"table": "injected", **_injected(table, found, slow)})
            if found.law in COST_LAWS and (table.kind == "number" or slow):
                records.append({"table": "costs", **_costs(table, found)})
    return records


def leaks_of(table: RealTable) -> Iterator[Leak]:
    """Yield the table with a leak by every law, at some strengths drawn for it."""
    seed = zlib.crc32(table.name.encode())
    rng = np.random.default_rng(seed)
    for place, law in enumerate(LAWS):
        weak = rng.choice([r for r in STRENGTHS if r < STRONG_FROM])
        strong = rng.choice([r for r in STRENGTHS if r >= STRONG_FROM])
        strengths = [1.0] if law in EXACT else [float(weak), float(strong)]
        for r in strengths:
            made = leak(table.X, table.y, law, r, [seed, place, int(100 * r)])
            if made is not None and table.y[made.rows].nunique() > 1:
                yield made


def _screen(X: pd.DataFrame, y: pd.Series) -> LeakScreen:
    return LeakScreen(target="number" if y.dtype.kind == "f" else "class").fit(X, y)


def _facts(table: RealTable) -> Record:
    return {
        "rows": len(table.X),
        "columns": table.X.shape[1],
        "classes": 0 if table.kind == "number" else table.y.nunique(),
    }


def _untouched(table: RealTable, slow: bool) -> Record:
    """Return what is dropped and named, and the rivals' highest score.

    Exact copies of the label, and pairs whose sum it is, are left out of every tool's alarms, and
    of the tables that get a leak: that one is computed from the other is arithmetic there.
    """
    screen = _screen(table.X, table.y)
    decision = screen.screening_.decision.astype(str)
    arithmetic = np.isin(decision, (COPY, PAIR))
    dropped = np.isin(decision, LEFT_OUT) & ~arithmetic
    named = (screen.screening_.grade > 0) | dropped
    honest = table.X.loc[:, ~arithmetic]
    highest: Record = {}
    if honest.shape[1]:
        found = rivals.scores(honest, table.y, slow=slow)
        highest = {name: float(np.nanmax(score)) for name, score in found.items()}
    return {
        **_facts(table),
        "target": str(table.y.name),
        "dropped": " | ".join(table.X.columns[dropped]),
        "named": " | ".join(table.X.columns[named]),
        "arithmetic": " | ".join(table.X.columns[arithmetic]),
        **highest,
    }


def _injected(table: RealTable, found: Leak, slow: bool) -> Record:
    X = found.X[found.rows].reset_index(drop=True)
    y = table.y[found.rows].reset_index(drop=True)
    X = X.loc[:, X.nunique() > 1]
    screen = _screen(X, y)
    place = np.flatnonzero(X.columns.isin(found.columns))
    screening = screen.screening_
    dropped = ~screening.kept
    others = np.delete(dropped, place)
    asked = slow and found.law in SLOW_LAWS and found.strength >= STRONG_FROM
    scores = rivals.scores(X, y, slow=asked)
    return {
        **_facts(table),
        "law": found.law,
        "r": found.strength,
        "rows left": len(X),
        "dropped": bool(dropped[place].any()),
        "named": bool((screening.grade[place] > 0).any() or dropped[place].any()),
        "grade": GRADES[int(screening.grade[place].max())],
        "decision": str(screening.decision[place[0]]),
        "because": str(screening.reasons[place[0]]),
        "others dropped": int(others.sum()),
        **{name: float(np.nanmax(score[place])) for name, score in scores.items()},
    }


def _costs(table: RealTable, found: Leak) -> Record:
    """Return the error on rows in which the leak tells nothing, of models that keep or drop it.

    Half of the rows is fitted, the other half tests; there the leak is one of another row, as when
    it is not known yet, or rows are not selected any more. Errors are the RMSE in standard
    deviations of the label, and one less the accuracy.
    """
    rng = np.random.default_rng(zlib.crc32(f"{table.name}{found.law}{found.strength}".encode()))
    order = rng.permutation(len(table.X))
    rows = found.rows[order]
    train = order[: len(order) // 2][rows[: len(order) // 2]]
    test = order[len(order) // 2 :]
    facts = {**_facts(table), "law": found.law, "r": found.strength}
    if len(train) < 100 or table.y.iloc[train].nunique() < 2:
        return facts
    X = found.X.iloc[train]
    y = table.y.iloc[train]
    new_X = found.X.iloc[test].copy()
    new_y = table.y.iloc[test]
    for column in found.columns:
        new_X[column] = rng.permutation(new_X[column].to_numpy())
    everything = np.ones(X.shape[1], dtype=bool)
    honest = ~X.columns.isin(found.columns)
    kept = _screen(X, y).get_support() | ~(X.nunique() > 1).to_numpy()
    masks = {
        "all columns": everything,
        "screened": kept,
        "without the largest |correlation|": _without_largest(rivals.correlation(X, y)),
        "oracle": honest,
    }
    errors = {name: _error(X, y, new_X, new_y, mask) for name, mask in masks.items()}
    return {**facts, **errors}


def _without_largest(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(np.arange(len(scores)) != np.nanargmax(scores))


def _error(
    X: pd.DataFrame,
    y: pd.Series,
    new_X: pd.DataFrame,
    new_y: pd.Series,
    columns: NDArray[np.bool_],
) -> float:
    if not columns.any():
        return float("nan")
    scaler = StandardScaler().fit(X.loc[:, columns])
    inputs = scaler.transform(X.loc[:, columns])
    new_inputs = np.clip(scaler.transform(new_X.loc[:, columns]), -10.0, 10.0)
    if y.dtype.kind != "f":
        most = MOST_ROWS_OF_A_CLASSIFIER
        classifier = LogisticRegression(max_iter=200).fit(inputs[:most], y.iloc[:most])
        return 1.0 - float(classifier.score(new_inputs[:most], new_y.iloc[:most]))
    predicted = LinearRegression().fit(inputs, y).predict(new_inputs)
    error = float(np.sqrt(np.mean((predicted - new_y.to_numpy()) ** 2)) / y.std())
    return max(error, LEAST_ERROR)
