"""Print the tables of docs/results/real-tables.md, and renew that of docs/how-to/tables.md, from the data files.

    python lab/pages/real_tables_page.py

The prose of the page is written by hand; tests compare its tables with what this prints.
"""

from pathlib import Path

import pandas as pd

from pfdl_lab.report.markdown import markdown_table

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
CORRELATED = 0.6
HALVES = ("design", "report")
#: Columns under strong suspicion that were computed from the target, as the tables' own documentation says.
COMPUTED = {
    "survival/udca2": "a risk score computed from bilirubin, the target, and others",
    "wooldridge/bwght": "the logarithm of the target",
}
ACTS = {
    'the detector, and the step with `drop="suspects"`': ("suspect", "strong", "sure"),
    'the step with `drop="strong"`': ("strong", "sure"),
    'the step with `drop="sure"`, the default': ("sure",),
}
BEGIN, END = "<!-- made by python lab/pages/real_tables_page.py -->", "<!-- until here -->"


def summary(listed: pd.DataFrame, selected: pd.DataFrame) -> str:
    """Return the table of recall and false alarms: the detector, and the step at each grade."""
    computed = (listed["package"] + "/" + listed["item"]).isin(COMPUTED)
    noise = selected[(selected["way"] != "a real column") & (selected["correlation"].abs() >= CORRELATED)]
    rows = []
    for name, grades in ACTS.items():
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


def ways(selected: pd.DataFrame) -> str:
    rows = []
    for way, part in selected[selected["half"] == "report"].groupby("way", sort=False):
        tied = part[part["correlation"].abs() >= CORRELATED]
        others = (tied[["strong", "sure"]] != "").any(axis=1)
        found = [int(tied["grade"].isin(grades).sum()) for grades in ACTS.values()]
        median = f"{part['correlation'].abs().median():.2f}"
        rows.append([way, len(part), median, len(tied), *found, int(others.sum())])
    headers = ["rows are selected", "tables", "median correlation", "of 0.6 and more", "named", "strong or sure"]
    return markdown_table([*headers, "sure", "another column strong or sure"], rows)


def natural(listed: pd.DataFrame) -> str:
    touched = listed[(listed["strong"] != "") | (listed["sure"] != "")]
    rows = []
    for row in touched.to_dict("records"):
        table = f"{row['package']}/{row['item']}"
        names = [name for name in (row["sure"], row["strong"]) if name]
        rows.append([table, row["half"], row["rows"], row["target"], ", ".join(names), COMPUTED.get(table, "")])
    return markdown_table(["table", "half", "rows", "target", "strong suspect", "computed from the target"], rows)


def outcomes(listed: pd.DataFrame) -> str:
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


def environments(measured: pd.DataFrame) -> str:
    means = measured.groupby(["table", "method"], sort=False)["rmse"].mean().unstack("method")
    rows = [[name, *(f"{value:.4g}" for value in row)] for name, row in zip(means.index, means.to_numpy(), strict=True)]
    return markdown_table(["table", *means.columns], rows)


def read() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the data files: tables as they are, with selected rows, and with environments."""
    names = ("real-tables", "real-tables-injected", "environments")
    listed, selected, measured = (pd.read_csv(RESULTS / f"{name}.csv", keep_default_na=False) for name in names)
    return listed, selected, measured


def tables() -> list[str]:
    """Return the tables of the page, in their order."""
    listed, selected, measured = read()
    return [summary(listed, selected), ways(selected), natural(listed), outcomes(listed), environments(measured)]


def with_summary(text: str) -> str:
    """Return a text with the table of recall and false alarms between its marks."""
    listed, selected, _ = read()
    before, rest = text.split(BEGIN)
    return "\n".join([before + BEGIN, summary(listed, selected), END]) + rest.split(END)[1]


def main() -> None:
    print("\n\n".join(tables()))
    guide = DOCS / "how-to" / "tables.md"
    guide.write_text(with_summary(guide.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
