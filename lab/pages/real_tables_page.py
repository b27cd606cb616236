"""Print the tables of docs/results/real-tables.md from its data files; the prose there is written
by hand.

python lab/pages/real_tables_page.py
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest, ttest_1samp

from pfdl_lab.pairing import holm
from pfdl_lab.report.markdown import markdown_table

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CORRELATED = 0.6
HALVES = ("design", "report")
# : Columns under strong suspicion that were computed from the target, as the tables' own
# documentation says.
COMPUTED = {
    "survival/udca2": "a risk score computed from bilirubin, the target, and others",
    "wooldridge/bwght": "the logarithm of the target",
}
ACTS = {
    'the detector, and the step with `drop="suspects"`': ("suspect", "strong", "sure"),
    'the step with `drop="strong"`': ("strong", "sure"),
    'the step with `drop="sure"`, the default': ("sure",),
}
# : What was declared of fresh targets: recall is above (the default's is not tested), false alarms
# are below.
DECLARED = ((0.5, 0.2), (0.5, 0.05), (None, 0.01))


def injected(selected: pd.DataFrame, grades: Sequence[str]) -> pd.DataFrame:
    """Return by table how many columns of noise correlate with the target, and how many of them
    have such a grade.
    """
    tied = selected[
        (selected["way"] != "a real column") & (selected["correlation"].abs() >= CORRELATED)
    ]
    names = tied["package"] + "/" + tied["item"]
    return tied["grade"].isin(grades).groupby(names).agg(["sum", "size"])


def recall(by_table: pd.DataFrame) -> str:
    """Return the share found, with the 95 % interval of a bootstrap over tables."""
    counts = by_table.to_numpy()
    drawn = counts[np.random.default_rng(0).integers(len(counts), size=(4000, len(counts)))].sum(1)
    (found, total), (low, high) = (
        counts.sum(0),
        np.percentile(100 * drawn[:, 0] / drawn[:, 1], [2.5, 97.5]),
    )
    return f"{found} of {total} ({found / total:.0%}; {low:.0f} to {high:.0f})"


def wrong(plain: pd.DataFrame, grades: Sequence[str]) -> tuple[int, str]:
    """Return in how many tables something has such a grade; and the share, with the exact 95 %
    interval.
    """
    count = int((plain[list(grades)] != "").any(axis=1).sum())
    low, high = (100 * end for end in binomtest(count, len(plain)).proportion_ci())
    return count, f"{count} of {len(plain)} ({count / len(plain):.1%}; {low:.1f} to {high:.1f})"


def summary(listed: pd.DataFrame, selected: pd.DataFrame) -> str:
    """Return the table of recall and false alarms: the detector, and the step at each grade."""
    computed = (listed["package"] + "/" + listed["item"]).isin(COMPUTED)
    halves = [
        (selected[selected["half"] == half], listed[(listed["half"] == half) & ~computed])
        for half in HALVES
    ]
    rows = [
        [
            name,
            *(
                cell
                for tied, plain in halves
                for cell in (recall(injected(tied, grades)), wrong(plain, grades)[1])
            ),
        ]
        for name, grades in ACTS.items()
    ]
    headers = [
        "",
        *(f"{measure}, {half} half" for half in HALVES for measure in ("recall", "false alarms")),
    ]
    return markdown_table(headers, rows)


def confirmation() -> str:
    """Return the declared tests on fresh targets, by Holm's method over the five of them."""
    listed, selected = read("real-tables-fresh", "real-tables-fresh-injected")
    rows, chances, untested = list[list[str]](), list[float](), list[list[str]]()
    for (name, grades), (least, most) in zip(ACTS.items(), DECLARED, strict=True):
        by_table, (count, alarms) = injected(selected, grades), wrong(listed, grades)
        found = [f"{name}: recall", recall(by_table)]
        if least is None:
            untested.append([*found, "nothing", ""])
        else:
            beyond = by_table["sum"] - least * by_table["size"]
            rows.append([*found, f"above {100 * least:g} %"])
            chances.append(float(ttest_1samp(beyond, 0, alternative="greater").pvalue))
        rows.append([f"{name}: false alarms", alarms, f"below {100 * most:g} %"])
        chances.append(float(binomtest(count, len(listed), most, "less").pvalue))
    judged = [[*row, f"{chance:.2g}"] for row, chance in zip(rows, holm(chances), strict=True)]
    return markdown_table(
        ["", "measured (%; 95 % interval)", "declared", "p, Holm"], [*judged, *untested]
    )


def ways(selected: pd.DataFrame) -> str:
    rows = []
    for way, part in selected[selected["half"] == "report"].groupby("way", sort=False):
        tied = part[part["correlation"].abs() >= CORRELATED]
        others = (tied[["strong", "sure"]] != "").any(axis=1)
        found = [int(tied["grade"].isin(grades).sum()) for grades in ACTS.values()]
        median = f"{part['correlation'].abs().median():.2f}"
        rows.append([way, len(part), median, len(tied), *found, int(others.sum())])
    headers = [
        "rows are selected",
        "tables",
        "median correlation",
        "of 0.6 and more",
        "named",
        "strong or sure",
    ]
    return markdown_table([*headers, "sure", "another column strong or sure"], rows)


def natural(listed: pd.DataFrame) -> str:
    touched = listed[(listed["strong"] != "") | (listed["sure"] != "")]
    rows = []
    for row in touched.to_dict("records"):
        table = f"{row['package']}/{row['item']}"
        names = [name for name in (row["sure"] and f"{row['sure']} (sure)", row["strong"]) if name]
        rows.append(
            [
                table,
                row["half"],
                row["rows"],
                row["target"],
                ", ".join(names),
                COMPUTED.get(table, ""),
            ]
        )
    return markdown_table(
        ["table", "half", "rows", "target", "strong suspect", "computed from the target"], rows
    )


def environments(measured: pd.DataFrame) -> str:
    means = measured.groupby(["table", "method"], sort=False)["rmse"].mean().unstack("method")
    rows = [
        [name, *(f"{value:.4g}" for value in row)]
        for name, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    return markdown_table(["table", *means.columns], rows)


def read(*names: str) -> list[pd.DataFrame]:
    """Return data files."""
    return [pd.read_csv(RESULTS / f"{name}.csv", keep_default_na=False) for name in names]


def tables() -> list[str]:
    """Return the tables of the page, in their order."""
    listed, selected, measured = read("real-tables", "real-tables-injected", "environments")
    fresh = read("real-tables-fresh")[0].assign(half="fresh target")
    suspects = natural(pd.concat([listed, fresh]))
    return [
        confirmation(),
        summary(listed, selected),
        ways(selected),
        suspects,
        environments(measured),
    ]


if __name__ == "__main__":
    ArgumentParser(description=__doc__).parse_args()
    print("\n\n".join(tables()))
