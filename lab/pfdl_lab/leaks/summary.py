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
KINDS = {"number": "numbers", "class": "classes"}
#: What the declared tests compare with: most alarms, least recall by kind, and for binary columns.
MOST_ALARMS = 0.05
LEAST_RECALL = {"number": 0.5, "class": 0.4}
LEAST_RECALL_OF_BINARY = 0.3
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
    for name in [*QUICK, *SLOW]:
        asked = plain[plain[name].notna()] if name in plain else plain.iloc[:0]
        leaks = strong_leaks(injected, kind)
        if name in SLOW:
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


def declared_tests(
    untouched: pd.DataFrame, injected: pd.DataFrame, costs: pd.DataFrame
) -> pd.DataFrame:
    """Return the declared tests, one row each, with p-values by Holm's method."""
    rows = [_alarm_test(untouched, kind) for kind in KINDS]
    for kind, words in KINDS.items():
        leaks = strong_leaks(injected, kind)
        rows.append(_recall_test(leaks, f"recall, {words}", LEAST_RECALL[kind]))
    binary = injected[(injected["law"] == "binary") & (injected["kind"] == "number")]
    binary = binary[binary["r"] >= STRONG_FROM]
    rows.append(_recall_test(binary, "recall, binary columns", LEAST_RECALL_OF_BINARY))
    ratio = excess(costs)
    gained = (ratio["all columns"] - ratio["screened"]).to_numpy()
    rows.append(_row("excess, all columns - screened", "log RMSE", gained))
    rows.append(_rivals_test(untouched, injected))
    table = pd.DataFrame([row for row in rows if row])
    table["Holm"] = _holm(table["p"].to_numpy())
    return table


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
        "tables": len(values),
        "mean": values.mean(),
        "se": error,
        "low": low,
        "high": high,
        "p": p,
    }


def _recall_test(leaks: pd.DataFrame, comparison: str, least: float) -> dict[str, Any]:
    found = by_table(leaks["dropped"], leaks["table"])
    row = _row(comparison, f"share found, above {least:g}", found - least)
    if not row:
        return {"comparison": comparison, "mean": float(found.mean()), "p": np.nan}
    for name in ("mean", "low", "high"):
        row[name] += least
    return row


def _alarm_test(untouched: pd.DataFrame, kind: str) -> dict[str, Any]:
    touched = untouched.loc[untouched["kind"] == kind, "dropped"] != ""
    comparison = f"alarms, {KINDS[kind]}"
    if touched.empty:
        return {"comparison": comparison, "p": np.nan}
    test = stats.binomtest(int(touched.sum()), len(touched), MOST_ALARMS, alternative="less")
    exact = stats.binomtest(int(touched.sum()), len(touched)).proportion_ci()
    share = float(touched.mean())
    return {
        "comparison": comparison,
        "endpoint": f"share of untouched tables touched, below {MOST_ALARMS:g}",
        "tables": len(touched),
        "mean": share,
        "se": float(np.sqrt(share * (1.0 - share) / len(touched))),
        "low": exact.low,
        "high": exact.high,
        "p": test.pvalue,
    }


def _rivals_test(untouched: pd.DataFrame, injected: pd.DataFrame) -> dict[str, Any]:
    """Return the test against the rival that comes nearest."""
    rows = []
    for kind, words in KINDS.items():
        for name, values in rival_recall(untouched, injected, kind).items():
            rows.append(_row(f"screen - {name}, {words}", "share found", values))
    rows = [row for row in rows if row]
    if not rows:
        return {"comparison": "screen - nearest rival", "p": np.nan}
    return max(rows, key=lambda row: row["p"])


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values by Holm's method; what was not tested stays NaN."""
    adjusted = np.full(len(p), np.nan)
    order = [place for place in np.argsort(p) if not np.isnan(p[place])]
    worst = 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p[place]))
        adjusted[place] = worst
    return adjusted


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
        lines = {name: _row(name, "found", values) for name, values in differences.items()}
        table = pd.DataFrame(list(lines.values()))
        parts[f"Recall, screen - rival at equal alarms, {words}"] = table
    without_exact = injected[~injected["law"].isin(EXACT)]
    shares = {}
    for kind, words in KINDS.items():
        leaks = strong_leaks(without_exact, kind)
        shares[words] = 100.0 * by_table(leaks["dropped"], leaks["table"]).mean()
    parts["Found without the exact laws"] = pd.Series(shares).to_frame("percent")
    for title, table in parts.items():
        print(f"\n{title}\n{table.round(4).to_string()}")
