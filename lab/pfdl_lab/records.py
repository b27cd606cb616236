"""The records of a study, by the seed: what the register and the pages compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import pandas as pd

from pfdl.runs import read_run
from pfdl_lab.images.rows import RATIOS
from pfdl_lab.images.run import NUMBER
from pfdl_lab.images.tables import Measured, measure
from pfdl_lab.images.testing import CHOSEN, LAST
from pfdl_lab.mmads.paper import CELLS, PAPER, name_cell
from pfdl_lab.report.reading import Columns, read_results

IN_THE_PAPER = " in the paper"
"""Ends the name of a row that has the paper's printed figures."""

EPOCHS: Mapping[str, tuple[str, ...]] = {
    "early": tuple(map(str, range(5, 41, 5))),
    "all": tuple(map(str, range(5, 161, 5))),
    "early, sparsely tested": ("5", "10", "20", "40"),
    "late": tuple(map(str, range(120, 161, 5))),
    "last": (LAST,),
    "chosen": (CHOSEN,),
}
"""The epochs of a training over which an endpoint is the mean."""

MEAN = "mean of the seven ratios"
LESS = " less "
ELSE_CLASSES = "sampler-or-classes"
"""The sampler of inferred contexts where some are accepted, else that of classes."""

Values = pd.Series  # of floats, by the seed


class Records:
    """The values of a study, by the seed.

    Args:
        results: Its table.
    """

    def __init__(self, results: pd.DataFrame) -> None:
        self.results = results

    def values(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the values of a row on a data set; none where nothing was measured.

        Args:
            data: The data set; with two tables in the study, or two networks on the data, followed
                by ``@`` and which of them is meant.
            row: The row.
            endpoint: What of a training counts.
            test: The test. ``"a less b"`` is the difference of two.
        """
        first, less, second = test.partition(LESS)
        if less:
            return self.values(data, row, endpoint, first) - self.values(
                data, row, endpoint, second
            )
        return self.measured(data, row, endpoint, test)

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the values of one test."""
        raise NotImplementedError

    def printed(self, data: str, row: str, endpoint: str, test: str) -> float:
        """Return the figure that the paper prints of a row."""
        raise ValueError(f"the paper prints no {test} of {row} on {data}, {endpoint}.")


class ImageRecords(Records):
    """Trainings on images: accuracies in percent, by epoch and test."""

    def __init__(self, results: pd.DataFrame) -> None:
        super().__init__(results)
        self.parts: dict[str, Measured] = {}
        tables = results["table"] if "table" in results else pd.Series("", results.index)
        for table, lines in results.groupby(tables):
            for part in measure(lines):
                for name in (part.data, f"{part.data}@{part.backbone}", f"{part.data}@{table}"):
                    self.parts.setdefault(name, part)

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the mean over the epochs of an endpoint, and over the ratios."""
        if data not in self.parts:
            return pd.Series(dtype=float)
        if row == ELSE_CLASSES:
            accepted = self.parts[data].of("sampler", LAST, NUMBER) > 1
            classes = self.measured(data, "sampler-classes", endpoint, test)
            sampler = self.measured(data, "sampler", endpoint, test)
            return sampler.where(accepted, classes)
        ratios = RATIOS if test == MEAN else (test,)
        epochs = EPOCHS.get(endpoint, (endpoint,))
        return self.parts[data].mean(row, epochs, ratios)


class MMADSRecords(Records):
    """Errors of methods on tables; the endpoint is a cell of Table I."""

    def __init__(self, results: pd.DataFrame) -> None:
        super().__init__(results)
        keys = ["setting", "n", "p", "r", "method", "metric"]
        self.known = {key: lines.set_index("seed")["value"] for key, lines in results.groupby(keys)}

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return a metric of a method in a cell, or the printed one for every seed."""
        cell = CELLS[_place(endpoint)]
        method = row.removesuffix(IN_THE_PAPER)
        found = self.known[(data, *cell, method, test)]
        if method == row:
            return found
        return pd.Series(self.printed(data, row, endpoint, test), found.index)

    def printed(self, data: str, row: str, endpoint: str, test: str) -> float:
        """Return the figure of Table I."""
        return PAPER[row.removesuffix(IN_THE_PAPER)][test][_place(endpoint)]


def _place(cell: str) -> int:
    return [name_cell(one).replace(" ", "_") for one in CELLS].index(cell)


class ColoredRecords(Records):
    """Accuracies of restarts on Colored-MNIST at the last step."""

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the accuracy of a row in training or in the test environment."""
        lines = self.results[self.results["row"] == row]
        last = lines[lines["step"].isna() | (lines["step"] == lines["step"].max())]
        seeds = last["restart_seed"] if "restart_seed" in last else last["restart"]
        values: Values = last.set_index(seeds)[f"{test}_accuracy"].sort_index()
        return values


class SpuCoRecords(Records):
    """Accuracies over groups on SpuCoMNIST; the data are a difficulty, or all of them."""

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the average over groups or that of the worst, as the mean over difficulties."""
        name, _, table = data.partition("@")
        results = self.results
        lines = results[results["row"] == row]
        if table:
            lines = lines[lines["table"] == table]
        if name != "all":
            lines = lines[lines["magnitude"] == name]
        means: Values = lines.groupby("seed")[f"{endpoint}_{test}"].mean()
        return means


class WideRecords(Records):
    """A line for each seed and row, or for each seed alone, with a column for each test."""

    def measured(self, data: str, row: str, endpoint: str, test: str) -> Values:
        """Return the column of a test."""
        results = self.results
        if "table" in results:
            results = results[results["table"] == endpoint]
        if "row" not in results:
            return results.set_index("seed")[f"{row} {test}"]
        lines = results[results["row"] == row].set_index("seed")
        if test == MEAN:
            return lines[list(RATIOS)].astype(float).mean(axis=1)
        return lines[test].astype(float)


KINDS: Mapping[str, Callable[[pd.DataFrame], Records]] = {
    "images": ImageRecords,
    "mmads": MMADSRecords,
    "colored-mnist": ColoredRecords,
    "spuco-mnist": SpuCoRecords,
}


@lru_cache(maxsize=32)
def open_records(folder: Path) -> Records:
    """Return the records of a study.

    Raises:
        OSError: If they cannot be read.
        ValueError: If they are damaged.
    """
    run = read_run(folder)
    problems = list[str]()
    words = ("data", "backbone", "row", "epoch", "test") if run.kind == "images" else ()
    results = read_results(run, Columns(words=words), problems)
    if problems:
        raise ValueError(" ".join(problems))
    return KINDS.get(run.kind, WideRecords)(results)
