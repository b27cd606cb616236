"""The five tests that were declared of the screen on real tables, computed again from records."""

import numpy as np
import pandas as pd
import pytest
from lab.tests.report.made_up import EVIDENCE, needs_evidence
from scipy.stats import binomtest, ttest_1samp

STUDY = EVIDENCE / "real-tables"
CORRELATED = 0.6
GRADES = {
    "suspects": ("suspect", "strong", "sure"),
    "strong": ("strong", "sure"),
    "sure": ("sure",),
}


def records(name):
    return pd.read_csv(STUDY / f"{name}.csv.gz", keep_default_na=False)


def recall(grades):
    """Return the share of injected columns that are named, the interval of a bootstrap over tables,
    and p.
    """
    selected = records("fresh-injected")
    tied = selected[
        (selected["way"] != "a real column") & (selected["correlation"].abs() >= CORRELATED)
    ]
    names = tied["package"] + "/" + tied["item"]
    counts = tied["grade"].isin(grades).groupby(names).agg(["sum", "size"]).to_numpy()
    rows = np.random.default_rng(0).integers(len(counts), size=(4000, len(counts)))
    drawn = counts[rows].sum(axis=1)
    low, high = np.percentile(100 * drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    beyond = counts[:, 0] - 0.5 * counts[:, 1]
    p = ttest_1samp(beyond, 0, alternative="greater").pvalue
    found, total = counts.sum(axis=0)
    return {"mean": 100 * found / total, "low": low, "high": high, "p": p, "seeds_run": len(counts)}


def false_alarms(grades, bound):
    """Return the share of untouched tables in which something is named, and p."""
    listed = records("fresh")
    count = int((listed[list(grades)] != "").any(axis=1).sum())
    low, high = (100 * end for end in binomtest(count, len(listed)).proportion_ci())
    p = binomtest(count, len(listed), bound, "less").pvalue
    total = len(listed)
    return {"mean": 100 * count / total, "low": low, "high": high, "p": p, "seeds_run": total}


MEASURED = {
    "suspects: recall - 50 %": lambda: recall(GRADES["suspects"]),
    "suspects: false alarms - 20 %": lambda: false_alarms(GRADES["suspects"], 0.2),
    "strong: recall - 50 %": lambda: recall(GRADES["strong"]),
    "strong: false alarms - 5 %": lambda: false_alarms(GRADES["strong"], 0.05),
    "sure: false alarms - 1 %": lambda: false_alarms(GRADES["sure"], 0.01),
}


@pytest.mark.parametrize("comparison", MEASURED)
def test_a_declared_test_of_the_screen_is_what_its_records_say(comparison):
    needs_evidence()
    kept = pd.read_csv(STUDY / "tests.csv").set_index("comparison").loc[comparison]
    for name, value in MEASURED[comparison]().items():
        assert kept[name] == pytest.approx(value, rel=1e-3), name


def test_every_declared_test_of_the_screen_is_there():
    needs_evidence()
    assert pd.read_csv(STUDY / "tests.csv")["comparison"].tolist() == list(MEASURED)
