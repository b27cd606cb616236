"""Write the tables of docs/results/contexts.md from docs/results/spuco-mnist.csv.

    python benchmarks/spuco_mnist_page.py

The CSV is what ``benchmarks/spuco_mnist.py train`` wrote.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from markdown_table import markdown_table
from pfdl_lab.pairing import paired
from pfdl_lab.statistics import difference_cell

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MARKS = "<!-- tables of benchmarks/spuco_mnist_page.py -->", "<!-- end of the tables -->"
COLUMNS = {
    "erm": "ERM",
    "auto sampler": "**ours**",
    "spare sampler": "SPARE",
    "jtt sampler": "JTT",
    "eiil sampler": "EIIL",
    "true sampler": "true groups",
    "auto weights": "ours, weights",
}
PEERS = ("spare sampler", "jtt sampler", "eiil sampler")
OURS = "auto sampler"
WAYS = ("auto", "pooled", "within", "early", "errors")


def by_setting(results: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name of each setting, which begins its row of a table, and its results."""
    for (magnitude, strength), part in results.groupby(["magnitude", "strength"], sort=True):
        yield f"{magnitude} {strength:g}", part


def mean(values: pd.Series) -> str:
    return f"{values.mean():.1f} ± {values.sem():.1f}" if len(values) > 1 else f"{values.mean():.1f}"


def accuracies(results: pd.DataFrame, measure: str, *, judged: bool) -> list[str]:
    rows = []
    for setting, part in by_setting(results):
        by_row = {row: lines.set_index("seed")[measure] for row, lines in part.groupby("row")}
        cells = [setting, *(mean(by_row[row]) for row in COLUMNS)]
        if judged:
            best = max(PEERS, key=lambda row: by_row[row].mean())
            difference = paired(by_row[OURS], by_row[best])
            cells.append(f"{difference_cell(difference, 1)} ({COLUMNS[best]})")
        rows.append(cells)
    columns = ["setting", *COLUMNS.values(), *(["ours − best peer, paired"] if judged else [])]
    return markdown_table(columns, rows)


def groups(results: pd.DataFrame) -> list[str]:
    rows = []
    for setting, part in by_setting(results):
        cells = [setting]
        for row in (OURS, *PEERS):
            found = part[part["row"] == row]
            precision, recall = found["minority_precision"], found["minority_recall"]
            nothing = precision.isna().all()
            cells.append("none found" if nothing else f"{precision.mean():.2f} / {recall.mean():.2f}")
        rows.append(cells)
    return markdown_table(["setting", *(COLUMNS[row] for row in (OURS, *PEERS))], rows)


def ways(results: pd.DataFrame, measure: str) -> list[str]:
    """Compare our ways of inferring contexts, each by itself; where one found nothing it is plain training."""
    rows = []
    for setting, part in by_setting(results):
        cells = [setting]
        for way in WAYS:
            found = part[part["row"] == f"{way} sampler"]
            cells.append(mean(found[measure]) + (" (none found)" if (found["contexts"] == 1).all() else ""))
        rows.append(cells)
    return markdown_table(["setting", *WAYS], rows)


def tables() -> str:
    results = pd.read_csv(RESULTS / "spuco-mnist.csv")
    parts = [
        "**Worst group in percent, at the epoch with the best worst group of the validation images**",
        accuracies(results, "chosen_worst", judged=True),
        "**Worst group in percent, after the last epoch**",
        accuracies(results, "last_worst", judged=True),
        "**Average over the groups in percent, at the chosen epoch**",
        accuracies(results, "chosen_average", judged=False),
        "**Minority precision / recall of the groups**",
        groups(results),
        "**Each of our ways by itself: worst group in percent, at the chosen epoch**",
        ways(results, "chosen_worst"),
        "**Each of our ways by itself: worst group in percent, after the last epoch**",
        ways(results, "last_worst"),
    ]
    return "\n\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts)


def main() -> None:
    page = RESULTS / "contexts.md"
    before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n\n{tables()}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
