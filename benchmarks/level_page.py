"""Write the tables of docs/results/level.md from the CSV files of three other pages.

    python benchmarks/level_page.py

They are what ``pfdl reproduce table-ii`` and ``pfdl study`` wrote, see the pages themselves.
"""

from pathlib import Path

import pandas as pd

from markdown_table import markdown_table
from pfdl.experiments.pairing import PairedDifference, paired

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MARKS = "<!-- tables of benchmarks/level_page.py -->", "<!-- end of the tables -->"
PAIRS = (("level", "erm"), ("pfdl", "erm"), ("level", "pfdl"))
NETWORKS = ("resnet50", "resnet18", "efficientnet-lite0")
TITLES = {"erm": "ERM", "pfdl": "PFDL", "level": "level"}


def measured() -> pd.DataFrame:
    """Return all accuracies of the three rows: setting, epoch, row, seed, test, value."""
    parts = []
    for folder in ("table-ii", "decorrelation"):
        part = pd.read_csv(RESULTS / folder / "results.csv", dtype={"epoch": str})
        parts.append(part.assign(setting=part["backbone"] + ", " + part["data"] + ", 160 epochs"))
    study = pd.read_csv(RESULTS / "images.csv")
    tuned = study["dataset"].str.contains("fine-tuned")
    names = study["dataset"].str.replace(", fine-tuned", "").str.split(", ")
    settings = names.str[1] + tuned.map({True: " fine-tuned, ", False: ", "}) + names.str[0]
    parts.append(study.assign(setting=settings + tuned.map({True: ", 10 epochs", False: ", 30 epochs"}), epoch="last"))
    found = pd.concat(parts)
    found = found[found["row"].isin(TITLES)]
    trained = found[found["row"] == "level"]["setting"].unique()
    # The paper's network first, then the smaller one, then the fine-tuned one.
    return found[found["setting"].isin(trained)].sort_values("setting", key=_network, kind="stable")


def _network(settings: pd.Series) -> pd.Series:
    return settings.str.split(r"[ ,]", n=1, regex=True).str[0].map(NETWORKS.index)


def shown(difference: PairedDifference, values: pd.Series) -> str:
    text = f"{difference.mean:+.1f} ± {difference.standard_error:.1f}".replace("-", "−")
    text = f"**{text}**" if difference.is_beyond_chance() else text
    return f"{text}, {int((values > 0).sum())} of {difference.pairs}"


def differences(found: pd.DataFrame, epoch: str, test: str) -> str:
    """Return the table of an epoch and a test: a line for each setting, with paired differences."""
    rows = []
    part = found[(found["epoch"] == epoch) & (found["test"] == test)]
    for setting in part["setting"].unique():
        values = part[part["setting"] == setting].pivot_table(index="seed", columns="row", values="value")
        cells = [setting, f"{values['erm'].mean():.1f}"]
        for first, second in PAIRS:
            difference = paired(values[first].dropna(), values[second].dropna())
            assert difference is not None
            cells.append(shown(difference, values[first] - values[second]))
        rows.append(cells)
    heads = ["network and images", "ERM", *(f"{TITLES[first]} − {TITLES[second]}" for first, second in PAIRS)]
    return "\n".join(markdown_table(heads, rows))


def tables() -> str:
    found = measured()
    epochs = {
        "last": "At the last epoch",
        "40": "After 40 of 160 epochs",
        "80": "After 80 of 160 epochs, before the learning rate falls",
    }
    return "\n\n".join(
        f"**{when}, tested at {test}: accuracy of ERM in percent, and paired differences in points**\n\n"
        + differences(found, epoch, test)
        for epoch, when in epochs.items()
        for test in ("1:5", "5:1")
    )


def main() -> None:
    page = RESULTS / "level.md"
    before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n\n{tables()}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
