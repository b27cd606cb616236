"""Write the tables of docs/results/level.md from the CSV files of three other pages.

    python lab/pages/level.py

They are what ``pfdl reproduce`` and ``pfdl study`` wrote, see the pages themselves.
"""

from pathlib import Path

import pandas as pd

from pfdl.report.blocks import Section
from pfdl.report.tables import Number, Row, Table
from pfdl_lab.report.markdown import render, replace_tables
from pfdl_lab.statistics import difference_with_count

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAIRS = (("level", "erm"), ("pfdl", "erm"), ("level", "pfdl"))
NETWORKS = ("resnet50", "resnet18", "efficientnet-lite0")
TITLES = {"erm": "ERM", "pfdl": "PFDL", "level": "level"}
EPOCHS = {
    "last": "At the last epoch",
    "40": "After 40 of 160 epochs",
    "80": "After 80 of 160 epochs, before the learning rate falls",
}


def measured() -> pd.DataFrame:
    """Return all accuracies of the three rows: setting, epoch, row, seed, test, value."""
    parts = []
    for folder, epochs in (("table-ii", 160), ("decorrelation", 160), ("images", 30)):
        part = pd.read_csv(RESULTS / folder / "results.csv", dtype={"epoch": str})
        tuned = part["backbone"] == "efficientnet-lite0"
        names = part["backbone"] + tuned.map({True: " fine-tuned", False: ""}) + ", " + part["data"]
        parts.append(part.assign(setting=names + tuned.map({True: ", 10 epochs", False: f", {epochs} epochs"})))
    found = pd.concat(parts)
    found = found[found["row"].isin(TITLES)]
    trained = found[found["row"] == "level"]["setting"].unique()
    # The paper's network first, then the smaller one, then the fine-tuned one.
    return found[found["setting"].isin(trained)].sort_values("setting", key=_network, kind="stable")


def _network(settings: pd.Series) -> pd.Series:
    return settings.str.split(r"[ ,]", n=1, regex=True).str[0].map(NETWORKS.index)


def differences(found: pd.DataFrame, epoch: str, when: str, test: str) -> Table:
    """Return the table of an epoch and a test: a line for each setting, with paired differences."""
    part = found[(found["epoch"] == epoch) & (found["test"] == test)]
    rows = []
    for setting in part["setting"].unique():
        by_row = part[part["setting"] == setting].pivot_table(index="seed", columns="row", values="value")
        values = {row: by_row[row].dropna() for row in TITLES}
        pairs = [difference_with_count(values[first], values[second], digits=1) for first, second in PAIRS]
        rows.append(Row(setting, (Number(values["erm"].mean()), *pairs)))
    columns = ["ERM", *(f"{TITLES[first]} − {TITLES[second]}" for first, second in PAIRS)]
    caption = f"{when}, tested at {test}: accuracy of ERM in percent, and paired differences in points"
    return Table(caption, "network and images", columns, rows)


def tables() -> str:
    """Return the section below the mark, as Markdown."""
    found = measured()
    blocks = [differences(found, epoch, when, test) for epoch, when in EPOCHS.items() for test in ("1:5", "5:1")]
    return render([Section("The tables", blocks)], level=2).text


def main() -> None:
    """Replace the tables of the page."""
    page = RESULTS / "level.md"
    command = "python lab/pages/level.py"
    page.write_text(replace_tables(page.read_text(encoding="utf-8"), tables(), command), encoding="utf-8")


if __name__ == "__main__":
    main()
