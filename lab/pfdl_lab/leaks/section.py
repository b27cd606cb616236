"""What the records of the benchmark say: recall, alarms, costs, and the declared tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from pfdl.runs import Run, read_run
from pfdl_lab.leaks.laws import EXACT
from pfdl_lab.leaks.rivals import QUICK, SLOW
from pfdl_lab.leaks.run import KIND as KIND, SLOW_LAWS, STRONG_FROM
from pfdl_lab.report.blocks import Section, table_of
from pfdl_lab.report.reading import Columns, read_results

TITLE = "Leaks in tables"
COLUMNS = Columns(words=("item", "kind"), keys=("item", "kind", "law", "r"))
#: The slow rivals, also one that is not installed where the records are read.
ASKED_OF_SOME = tuple(dict.fromkeys([*SLOW, "targetleak"]))
KINDS = {"number": "numbers", "class": "classes"}
#: What the declared tests compare with, in percent.
MOST_ALARMS = 5.0
LEAST_RECALL = {"number": 50.0, "class": 40.0}
LEAST_RECALL_OF_BINARY = 30.0
#: What the register says of all of them, and the questions of which one is the primary test.
DECLARED: dict[str, Any] = {
    "family": "Leaks in tables",
    "declared": "2026-11-19 22:25",
    "commit": "b2ac4567",
    "data": "tables of the report half",
    "test": "one-sided",
    "looks": 1,
}
PRIMARY = {
    "recall of numbers - 50 %": "Does the leak screen find leaks in tables?",
    "alarms of numbers - 5 %": "Does the leak screen leave honest columns alone?",
}
_DRAWS = 2000


class Records(NamedTuple):
    """The lines of a run.

    Attributes:
        untouched: One for each table as it is.
        injected: One for each leak.
        costs: One for each leak whose costs were measured.
    """

    untouched: pd.DataFrame
    injected: pd.DataFrame
    costs: pd.DataFrame

    def of(self, kind: str) -> Records:
        """Return the lines of tables whose label is a number, or a class."""
        return Records(*(part[part["kind"] == kind] for part in self))

    @property
    def touched(self) -> pd.Series[bool]:
        """Whether the screen drops a column of a table as it is."""
        return self.untouched["dropped"] != ""

    def strong(self) -> pd.DataFrame:
        """Return the leaks of the declared tests: r of 0.6 and more, all laws but binary."""
        injected = self.injected
        return injected[(injected["r"] >= STRONG_FROM) & (injected["law"] != "binary")]


def split(results: pd.DataFrame) -> Records:
    """Return the lines of a run by what they are of."""
    words = ["dropped", "named", "arithmetic"]
    results = results.reindex(columns=results.columns.union(["law", "r", *words], sort=False))
    texts = results[words].astype(object).fillna("").astype(str)
    by_name = dict(iter(results.assign(**texts).groupby("table")))
    untouched, injected, costs = (by_name.get(name, results.iloc[:0]) for name in Records._fields)
    found = {name: injected[name] == "True" for name in ("dropped", "named")}
    return Records(untouched, injected.assign(**found), costs)


def read_records(folder: Path) -> Records:
    """Read the records of a run folder."""
    return split(read_results(read_run(folder), COLUMNS, []))


def by_item(values: pd.Series, leaks: pd.DataFrame) -> NDArray[np.float64]:
    """Return the mean of each table."""
    return np.asarray(values.astype(float).groupby(leaks["item"]).mean())


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by a bootstrap over tables."""
    rng = np.random.default_rng(0)
    draws = rng.choice(values, (_DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def recall_by_law(records: Records) -> pd.DataFrame:
    """Return, by kind and law, the percentage found of the leaks with r of 0.6 and more."""
    strong = records.injected[records.injected["r"] >= STRONG_FROM]
    rows = {}
    for (kind, law), leaks in strong.groupby(["kind", "law"]):
        found = 100.0 * by_item(leaks["dropped"], leaks)
        low, high = interval(found)
        rows[f"{KINDS[str(kind)]}, {law}"] = {
            "tables": len(found),
            "found": found.mean(),
            "low": low,
            "high": high,
            "named": 100.0 * by_item(leaks["named"], leaks).mean(),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def alarms(records: Records) -> pd.DataFrame:
    """Return, by kind and for real and drawn tables, how many are touched and named."""
    untouched = records.untouched.assign(touched=records.touched)
    drawn = untouched["item"].str.startswith("drawn/").map({True: "drawn", False: "real"})
    rows = {}
    for (kind, source), tables in untouched.groupby(["kind", drawn]):
        touched = int(tables["touched"].sum())
        exact = stats.binomtest(touched, len(tables)).proportion_ci()
        rows[f"{KINDS[str(kind)]}, {source}"] = {
            "tables": len(tables),
            "touched": touched,
            "percent": 100.0 * touched / len(tables),
            "low": 100.0 * exact.low,
            "high": 100.0 * exact.high,
            "named": int((tables["named"] != "").sum()),
            "with copies or sums": int((tables["arithmetic"] != "").sum()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def excess(records: Records, kind: str = "number") -> pd.DataFrame:
    """Return the log excess over the oracle of each way, by table; of classes, of the error."""
    ways = ["all columns", "screened", "without the largest |correlation|"]
    costs = records.of(kind).costs
    errors = costs.reindex(columns=[*ways, "oracle"]).astype(float).dropna(subset=["oracle"])
    if kind == "number":
        errors = errors.map(np.log)
    mean: pd.DataFrame = errors[ways].sub(errors["oracle"], axis=0).groupby(costs["item"]).mean()
    return mean


def threshold(records: Records, rival: str) -> float:
    """Return the lowest threshold at which a rival touches no more untouched tables than the screen
    does, of those it was asked about.
    """
    asked = records.untouched[rival].notna()
    scores = records.untouched.loc[asked, rival].astype(float)
    return float(np.sort(scores)[::-1][int(records.touched[asked].sum())])


def rival_recall(records: Records, kind: str) -> dict[str, NDArray[np.float64]]:
    """Return, by rival, the difference of recall (screen − rival) of each table at equal alarms."""
    of_kind = records.of(kind)
    differences = {}
    for name in [rival for rival in (*QUICK, *ASKED_OF_SOME) if rival in of_kind.injected]:
        leaks = of_kind.strong()
        if name in ASKED_OF_SOME:
            injected = of_kind.injected
            leaks = injected[injected["law"].isin(SLOW_LAWS) & (injected["r"] >= STRONG_FROM)]
        leaks = leaks[leaks[name].notna()]
        if leaks["item"].nunique() > 1:
            found = leaks[name].astype(float) > threshold(of_kind, name)
            differences[name] = by_item(leaks["dropped"].astype(float) - found, leaks)
    return differences


def recall_by_strength(records: Records, kind: str) -> pd.DataFrame:
    """Return the share found by strength, of the screen and of the quick rivals at equal alarms;
    without binary columns and exact copies.
    """
    of_kind = records.of(kind)
    leaks = of_kind.injected[~of_kind.injected["law"].isin([*EXACT, "binary"])]
    found: dict[str, pd.Series] = {"LeakScreen": leaks["dropped"].astype(float)}
    for name in [name for name in QUICK if name in leaks]:
        found[name] = leaks[name].astype(float) > threshold(of_kind, name)
    return pd.DataFrame(found).groupby(leaks["r"].astype(float)).mean()


def declared_tests(records: Records) -> pd.DataFrame:
    """Return the declared tests as the register wants them, one row each; shares in percent."""
    rows: list[dict[str, Any]] = []
    for kind, words in KINDS.items():
        rows += _alarm_test(records.of(kind), words)
    for kind, words in KINDS.items():
        rows += _recall_test(records.of(kind).strong(), words, LEAST_RECALL[kind])
    numbers = records.of("number").injected
    binary = numbers[(numbers["law"] == "binary") & (numbers["r"] >= STRONG_FROM)]
    rows += _recall_test(binary, "binary columns", LEAST_RECALL_OF_BINARY)
    ratio = excess(records)
    gained = 100.0 * (ratio["all columns"] - ratio["screened"]).to_numpy()
    rows += _mean_test("excess of all columns - screened", "100 log RMSE", gained)
    rows += _rivals_test(records)
    table = pd.DataFrame(rows)
    return table.assign(**DECLARED, primary=table["comparison"].map(PRIMARY))


def _mean_test(
    comparison: str, endpoint: str, values: NDArray[np.float64], least: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Test over tables that a mean is above the least, one-sided; nothing of fewer than two."""
    if len(values) < 2:
        return
    low, high = interval(values)
    error = values.std(ddof=1) / np.sqrt(len(values))
    p = float(stats.t.sf((values.mean() - least) / max(error, 1e-12), len(values) - 1))
    yield {
        "comparison": comparison,
        "endpoint": endpoint,
        "seeds_run": len(values),
        "mean": values.mean(),
        "standard_error": error,
        "low": low,
        "high": high,
        "p": p,
    }


def _recall_test(leaks: pd.DataFrame, words: str, least: float) -> Iterator[dict[str, Any]]:
    found = 100.0 * by_item(leaks["dropped"], leaks)
    comparison = f"recall of {words} - {least:g} %"
    return _mean_test(comparison, "share in percent", found, least)


def _alarm_test(records: Records, words: str) -> Iterator[dict[str, Any]]:
    touched = int(records.touched.sum())
    tables = len(records.untouched)
    if not tables:
        return
    test = stats.binomtest(touched, tables, MOST_ALARMS / 100.0, alternative="less")
    exact = stats.binomtest(touched, tables).proportion_ci()
    share = touched / tables
    yield {
        "comparison": f"alarms of {words} - {MOST_ALARMS:g} %",
        "endpoint": "share in percent",
        "seeds_run": tables,
        "mean": 100.0 * share,
        "standard_error": 100.0 * np.sqrt(share * (1.0 - share) / tables),
        "low": 100.0 * exact.low,
        "high": 100.0 * exact.high,
        "p": test.pvalue,
    }


def _rivals_test(records: Records) -> list[dict[str, Any]]:
    """Return the test against the rival that comes nearest."""
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for values in rival_recall(records, kind).values():
            rows += _mean_test("screen - nearest rival", "share in percent", 100.0 * values)
    return sorted(rows, key=lambda row: float(row["p"]))[-1:]


def build(run: Run, results: pd.DataFrame) -> Section:
    """Build the section of one run."""
    records = split(results)
    parts = {
        "Untouched tables": alarms(records),
        "Found, in percent of leaks with r of 0.6 and more": recall_by_law(records),
    }
    for kind, words in KINDS.items():
        ratio = excess(records, kind)
        mean = ratio.mean().dropna().to_frame("mean")
        parts[f"Mean excess over the oracle, {words}"] = mean
        tests: list[dict[str, Any]] = []
        for name, values in rival_recall(records, kind).items():
            tests += _mean_test(name, "found", 100.0 * values)
        columns = ["seeds_run", "mean", "low", "high"]
        table = pd.DataFrame(tests, columns=["comparison", *columns]).set_index("comparison")
        parts[f"Recall, screen - rival at equal alarms, points, {words}"] = table
    return Section(TITLE, [table_of(title, part) for title, part in parts.items() if len(part)])
