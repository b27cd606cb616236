"""What the records of the benchmark say: recall, alarms, costs, and the declared tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from pfdl_lab.leaks.laws import EXACT
from pfdl_lab.leaks.rivals import QUICK, SLOW
from pfdl_lab.leaks.run import SLOW_LAWS, STRONG_FROM

RECORDS = ("untouched", "injected", "costs")
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


def read_records(folder: Path) -> dict[str, pd.DataFrame]:
    """Read what `run` wrote."""
    tables = {name: pd.read_csv(folder / f"{name}.csv.gz") for name in RECORDS}
    for column in ("dropped", "named", "arithmetic"):
        tables["untouched"][column] = tables["untouched"][column].fillna("")
    return tables


def strong_leaks(injected: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the leaks of the declared tests: r of 0.6 and more, all laws but binary."""
    chosen = (injected["kind"] == kind) & (injected["r"] >= STRONG_FROM)
    return injected[chosen & (injected["law"] != "binary")]


def by_table(values: pd.Series, tables: pd.Series) -> NDArray[np.float64]:
    """Return the mean of each table."""
    return np.asarray(values.astype(float).groupby(tables).mean())


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by a bootstrap over tables."""
    rng = np.random.default_rng(0)
    draws = rng.choice(values, (_DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def recall_by_law(injected: pd.DataFrame) -> pd.DataFrame:
    """Return, by kind and law, the percentage found of the leaks with r of 0.6 and more."""
    strong = injected[injected["r"] >= STRONG_FROM]
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for (kind, law), group in strong.groupby(["kind", "law"]):
        found = by_table(group["dropped"], group["table"])
        low, high = interval(found)
        rows[str(kind), str(law)] = {
            "tables": len(found),
            "found": 100.0 * found.mean(),
            "low": 100.0 * low,
            "high": 100.0 * high,
            "named": 100.0 * by_table(group["named"], group["table"]).mean(),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def alarms(untouched: pd.DataFrame) -> pd.DataFrame:
    """Return, by kind and for real and drawn tables, how many are touched and named."""
    drawn = untouched["table"].str.startswith("drawn/").map({True: "drawn", False: "real"})
    rows = {}
    for (kind, source), group in untouched.groupby(["kind", drawn]):
        touched = int((group["dropped"] != "").sum())
        exact = stats.binomtest(touched, len(group)).proportion_ci()
        rows[kind, source] = {
            "tables": len(group),
            "touched": touched,
            "percent": 100.0 * touched / len(group),
            "low": 100.0 * exact.low,
            "high": 100.0 * exact.high,
            "named": int((group["named"] != "").sum()),
            "with copies or sums": int((group["arithmetic"] != "").sum()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def excess(costs: pd.DataFrame, kind: str = "number") -> pd.DataFrame:
    """Return the log excess over the oracle of each way, by table; of classes, of the error."""
    chosen = costs[costs["kind"] == kind].dropna(subset=["oracle"])
    ways = ["all columns", "screened", "without the largest |correlation|"]
    ratio = chosen[ways].sub(chosen["oracle"], axis=0)
    if kind == "number":
        ratio = chosen[ways].div(chosen["oracle"], axis=0).map(np.log)
    mean: pd.DataFrame = ratio.groupby(chosen["table"]).mean()
    return mean


def rival_recall(
    untouched: pd.DataFrame, injected: pd.DataFrame, kind: str
) -> dict[str, NDArray[np.float64]]:
    """Return, by rival, the difference of recall (screen − rival) of each table.

    A rival's threshold is the lowest at which it touches no more untouched tables than the screen
    does, of those it was asked about.
    """
    differences = {}
    plain = untouched[untouched["kind"] == kind]
    for name in [*QUICK, *ASKED_OF_SOME]:
        asked = plain[plain[name].notna()] if name in plain else plain.iloc[:0]
        leaks = strong_leaks(injected, kind)
        if name in ASKED_OF_SOME:
            slow = injected["law"].isin(SLOW_LAWS) & (injected["r"] >= STRONG_FROM)
            leaks = injected[slow & (injected["kind"] == kind)]
        leaks = leaks[leaks[name].notna()] if name in leaks else leaks.iloc[:0]
        if asked.empty or leaks["table"].nunique() < 2:
            continue
        touched = int((asked["dropped"] != "").sum())
        threshold = np.sort(asked[name].to_numpy())[::-1][touched]
        difference = leaks["dropped"].astype(float) - (leaks[name] > threshold)
        differences[name] = by_table(difference, leaks["table"])
    return differences


def recall_by_strength(untouched: pd.DataFrame, injected: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the share found by strength, of the screen and of the quick rivals at equal alarms;
    without binary columns and exact copies.
    """
    plain = untouched[untouched["kind"] == kind]
    touched = int((plain["dropped"] != "").sum())
    graded = (injected["kind"] == kind) & ~injected["law"].isin([*EXACT, "binary"])
    leaks = injected[graded]
    shares = {"LeakScreen": leaks["dropped"].astype(float).groupby(leaks["r"]).mean()}
    for name in [name for name in QUICK if name in plain]:
        threshold = np.sort(plain[name].fillna(0.0).to_numpy())[::-1][touched]
        shares[name] = (leaks[name] > threshold).groupby(leaks["r"]).mean()
    return pd.DataFrame(shares)


def declared_tests(
    untouched: pd.DataFrame, injected: pd.DataFrame, costs: pd.DataFrame
) -> pd.DataFrame:
    """Return the declared tests as the register wants them, one row each; shares in percent."""
    ratio = excess(costs)
    gained = 100.0 * (ratio["all columns"] - ratio["screened"]).to_numpy()
    binary = injected[(injected["law"] == "binary") & (injected["kind"] == "number")]
    rows = [_alarm_test(untouched, kind) for kind in KINDS]
    for kind, words in KINDS.items():
        leaks = strong_leaks(injected, kind)
        rows.append(_recall_test(leaks, f"recall of {words}", LEAST_RECALL[kind]))
    rows.append(
        _recall_test(
            binary[binary["r"] >= STRONG_FROM], "recall of binary columns", LEAST_RECALL_OF_BINARY
        )
    )
    rows.append(_row("excess of all columns - screened", "100 log RMSE", gained))
    rows.append(_rivals_test(untouched, injected))
    table = pd.DataFrame([row for row in rows if row])
    return table.assign(**DECLARED, primary=table["comparison"].map(PRIMARY))


def _row(comparison: str, endpoint: str, values: NDArray[np.float64]) -> dict[str, Any]:
    """Test over tables that a mean is above 0, one-sided."""
    if len(values) < 2:
        return {}
    low, high = interval(values)
    error = values.std(ddof=1) / np.sqrt(len(values))
    p = float(stats.t.sf(values.mean() / max(error, 1e-12), len(values) - 1))
    return {
        "comparison": comparison,
        "endpoint": endpoint,
        "seeds_run": len(values),
        "mean": values.mean(),
        "standard_error": error,
        "low": low,
        "high": high,
        "p": p,
    }


def _recall_test(leaks: pd.DataFrame, comparison: str, least: float) -> dict[str, Any]:
    """Test that the mean over tables of the share found is above the least; return the share."""
    found = by_table(leaks["dropped"], leaks["table"])
    row = _row(f"{comparison} - {least:g} %", "share in percent", 100.0 * found - least)
    for name in ("mean", "low", "high") if row else ():
        row[name] += least
    return row


def _alarm_test(untouched: pd.DataFrame, kind: str) -> dict[str, Any]:
    touched = untouched.loc[untouched["kind"] == kind, "dropped"] != ""
    if touched.empty:
        return {}
    bound = MOST_ALARMS / 100.0
    test = stats.binomtest(int(touched.sum()), len(touched), bound, alternative="less")
    exact = stats.binomtest(int(touched.sum()), len(touched)).proportion_ci()
    share = float(touched.mean())
    return {
        "comparison": f"alarms of {KINDS[kind]} - {MOST_ALARMS:g} %",
        "endpoint": "share in percent",
        "seeds_run": len(touched),
        "mean": 100.0 * share,
        "standard_error": 100.0 * np.sqrt(share * (1.0 - share) / len(touched)),
        "low": 100.0 * exact.low,
        "high": 100.0 * exact.high,
        "p": test.pvalue,
    }


def _rivals_test(untouched: pd.DataFrame, injected: pd.DataFrame) -> dict[str, Any]:
    """Return the test against the rival that comes nearest."""
    rows = []
    for kind in KINDS:
        for values in rival_recall(untouched, injected, kind).values():
            rows.append(_row("screen - nearest rival", "share in percent", 100.0 * values))
    return max((row for row in rows if row), key=lambda row: float(row["p"]), default={})


def print_summary(folder: Path) -> None:
    """Print recall, alarms, costs, rivals and the declared tests of the records in a folder."""
    records = read_records(folder)
    untouched, injected, costs = (records[name] for name in RECORDS)
    parts: dict[str, pd.DataFrame] = {
        "Untouched tables": alarms(untouched),
        "Found, in percent of leaks with r of 0.6 and more": recall_by_law(injected),
        "Declared tests": declared_tests(untouched, injected, costs),
    }
    for kind, words in KINDS.items():
        ratio = excess(costs, kind)
        parts[f"Mean excess over the oracle, {words}"] = ratio.mean().to_frame("mean")
        differences = rival_recall(untouched, injected, kind)
        table = pd.DataFrame([_row(name, "found", values) for name, values in differences.items()])
        parts[f"Recall, screen - rival at equal alarms, {words}"] = table
    without_exact = injected[~injected["law"].isin(EXACT)]
    shares = {}
    for kind, words in KINDS.items():
        leaks = strong_leaks(without_exact, kind)
        shares[words] = 100.0 * by_table(leaks["dropped"], leaks["table"]).mean()
    parts["Found without the exact laws"] = pd.Series(shares).to_frame("percent")
    for title, table in parts.items():
        print(f"\n{title}\n{table.round(4).to_string()}")
