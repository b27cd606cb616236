"""The register of declared tests: every one there ever was, computed again from the records.

A study of ``evidence/`` has its records and, in ``families.json``, what was declared: the pairs of
rows, where they are compared, on which seeds, and when that was written down. A study whose
endpoints are its own has ``tests.csv`` instead, a row for each test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pfdl._internal.files import write_atomically
from pfdl_lab.pairing import PairedDifference, holm, paired
from pfdl_lab.records import IN_THE_PAPER, Records, open_records
from pfdl_lab.report.blocks import Block, Cell, Heading, Number, Table, TableLine, Text
from pfdl_lab.report.reading import read_table

REGISTER = "declared.csv"
FAMILIES = "families.json"
TESTS = "tests.csv"
MEASURED = ("mean", "standard_error", "low", "high", "p")
COLUMNS = (
    "study",
    "family",
    "declared",
    "commit",
    "data",
    "comparison",
    "endpoint",
    "test",
    "seeds_declared",
    "seeds_run",
    "looks",
    *MEASURED,
    "p_holm",
    "primary",
    "departure",
)
NOTE = (
    "Paired differences ± standard error, with the 95 % interval of Student's t, p, and by Holm's"
    " method p over the family. A primary test is named by its question; the others are described"
    " by their interval."
)


@dataclass(frozen=True)
class Family:
    """Tests that were declared together and are judged together.

    Args:
        name: What it is called.
        declared: When it was written down, UTC.
        commit: The commit that did so.
        pairs: Rows that are compared, each as ``"row - rival"``.
        data: Data sets, as :class:`pfdl_lab.records.Records` names them.
        endpoints: What of a training counts, such as ``"last"``.
        tests: Tests of accuracy, or metrics.
        seeds: The first and the last seed that was declared.
        number: How many were declared, if not all between them.
        looks: How often the same question had been looked at, this one included.
        equality: Whether equality within a tenth of the rival's printed figure is tested.
        trainings: Over how many trainings the printed figure of a rival is a mean, if its error is
            to count; it is taken to scatter as ours.
        departure: What was done otherwise than declared.
        primary: Questions, by the test that answers them: ``"pair, endpoint, test"``.
    """

    name: str
    declared: str
    commit: str
    pairs: Sequence[str]
    data: Sequence[str]
    endpoints: Sequence[str]
    tests: Sequence[str]
    seeds: tuple[int, int]
    number: int | None = None
    looks: int = 1
    equality: bool = False
    trainings: int | None = None
    departure: str = ""
    primary: Mapping[str, str] | None = None

    def lines(self, study: str, records: Records) -> list[dict[str, Any]]:
        """Return a line of the register for each test."""
        first, last = self.seeds
        known: dict[str, Any] = {
            "study": study,
            "family": self.name,
            "declared": self.declared,
            "commit": self.commit,
            "seeds_declared": self.number or last - first + 1,
            "looks": self.looks,
            "departure": self.departure,
        }
        lines = []
        for pair, data, endpoint, test in product(
            self.pairs, self.data, self.endpoints, self.tests
        ):
            place = {"data": data, "comparison": pair, "endpoint": endpoint, "test": test}
            measured = self._measure(records, data, pair, endpoint, test)
            lines.append({**known, **place, **measured})
        adjusted = holm([line["p"] for line in lines])
        questions = dict(self.primary or {})
        for line, p_holm in zip(lines, adjusted, strict=True):
            name = f"{line['comparison']}, {line['endpoint']}, {line['test']}"
            line |= {"p_holm": p_holm, "primary": questions.pop(name, "")}
        if questions:
            raise ValueError(f"{study}: {self.name} has no test {next(iter(questions))!r}.")
        return lines

    def _measure(
        self, records: Records, data: str, pair: str, endpoint: str, test: str
    ) -> dict[str, Any]:
        row, rival = pair.split(" - ")
        first, last = self.seeds
        values = [
            _between(records.values(data, name, endpoint, test), first, last)
            for name in (row, rival)
        ]
        difference = paired(*values)
        if difference is None:
            return {"seeds_run": 0, **dict.fromkeys(MEASURED, math.nan)}
        found = _figures(difference)
        if self.trainings and rival.endswith(IN_THE_PAPER):
            wider = (1 + difference.pairs / self.trainings) ** 0.5
            found = _figures(
                replace(
                    difference,
                    standard_error=wider * difference.standard_error,
                    pairs=difference.pairs + self.trainings - 1,
                )
            )
        if self.equality:
            margin = 0.1 * records.printed(data, rival, endpoint, test)
            found["p"] = difference.equivalence_p_value(margin)
        return {"seeds_run": difference.pairs, **found}


def _between(values: pd.Series[float], first: int, last: int) -> pd.Series[float]:
    return values[(values.index >= first) & (values.index <= last)]


def _figures(difference: PairedDifference) -> dict[str, float]:
    return {
        "mean": difference.mean,
        "standard_error": difference.standard_error,
        "low": difference.mean - difference.reach,
        "high": difference.mean + difference.reach,
        "p": difference.p_value,
    }


def read_families(folder: Path) -> list[Family]:
    """Return what a study declared; nothing without a file that says so."""
    path = folder / FAMILIES
    if not path.is_file():
        return []
    return [Family(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def declared_tests(folder: Path) -> pd.DataFrame:
    """Return the lines of the register for one study."""
    families = read_families(folder)
    lines = list[dict[str, Any]]()
    if families:
        records = open_records(folder)
        for family in families:
            lines += family.lines(folder.name, records)
    table = pd.DataFrame(lines, columns=list(COLUMNS))
    if (folder / TESTS).is_file():
        own = read_table(folder / TESTS).assign(study=folder.name)
        table = pd.concat([_judged(own), table]) if len(table) else _judged(own)
    return table.reindex(columns=list(COLUMNS))


def _judged(tests: pd.DataFrame) -> pd.DataFrame:
    """Return the tests that a study measured by itself, each family judged by Holm's method."""
    adjusted = tests.groupby("family")["p"].transform(lambda chances: holm(chances.tolist()))
    return tests.assign(p_holm=adjusted)


def make_register(evidence: Path) -> pd.DataFrame:
    """Return all declared tests of all studies in a folder."""
    studies = sorted(path.parent for path in evidence.glob(f"*/{FAMILIES}"))
    studies += sorted(path.parent for path in evidence.glob(f"*/{TESTS}"))
    parts = [declared_tests(folder) for folder in dict.fromkeys(sorted(studies))]
    return pd.concat(parts, ignore_index=True)


def write_register(evidence: Path) -> Path:
    """Write ``declared.csv`` into a folder of studies, and return its path."""
    path = evidence / REGISTER
    write_atomically(path, make_register(evidence).to_csv(index=False, float_format="%.5g"))
    return path


def blocks(folder: Path) -> list[Block]:
    """Return the declared tests of a study as tables; nothing of a run that declared none."""
    tests = declared_tests(folder)
    if not len(tests):
        return []
    tables = [_table(str(family), part) for family, part in tests.groupby("family", sort=False)]
    return [Heading("Declared tests"), *tables, Text(NOTE), Heading("All that was measured")]


def _table(family: str, tests: pd.DataFrame) -> Table:
    lines = []
    words = dict.fromkeys(("primary", "test", "data", "departure"), "")
    tests = tests.fillna(words)
    for test in tests.to_dict("records"):
        place = ", ".join(str(test[name]) for name in ("data", "endpoint", "test") if test[name])
        difference = Number(test["mean"], test["standard_error"], 2, signed=True)
        low = Number(test["low"], digits=2, signed=True)
        high = Number(test["high"], digits=2, signed=True)
        cells: list[Cell] = [difference, f"{low} to {high}"]
        cells += [f"{test[name]:.2g}" for name in ("p", "p_holm")]
        cells += [str(test["seeds_run"]), test["primary"]]
        lines.append(TableLine(f"{test['comparison']}: {place}", tuple(cells)))
    first = tests.iloc[0]
    note = f"Declared {first['declared']}, commit {first['commit']}. {first['departure']}"
    columns = ["difference", "95 % interval", "p", "Holm", "seeds", "primary test of"]
    return Table(family, "comparison", columns, lines, note=note.strip())


def figures_of(evidence: Path, key: str) -> Iterator[str]:
    """Return how figures of the records may be written, for a mark such as
    ``phases/pacs/pfdl,erm/early/1:5``.

    Args:
        evidence: The folder of the studies.
        key: Study, data, row (or row and rival), endpoint and test; then, if need be, the first and
            the last seed as ``200-211``. Studies and their data may be joined by ``+``. With three
            parts it is a test of ``tests.csv``: study, comparison and endpoint.

    Yields:
        Mean ± standard error, interval, p-value and count of positive seeds, with any number of
        decimals from none to three.
    """
    studies, *place = key.split("/")
    if len(place) == 2:
        comparison, endpoint = place
        tests = declared_tests(evidence / studies)
        chosen = tests[(tests["comparison"] == comparison) & (tests["endpoint"] == endpoint)]
        for line in chosen[list(MEASURED)].to_dict("records"):
            yield from _written(*line.values())
        return
    difference = difference_of(evidence, key)
    yield f"{difference.positive} of {difference.pairs}"
    yield f"{difference.pairs}"
    yield from _written(*_figures(difference).values())


def difference_of(evidence: Path, key: str) -> PairedDifference:
    """Return what a mark of :func:`figures_of` names; of a row without a rival the mean.

    Raises:
        ValueError: If there are no such records.
    """
    studies, data, rows, endpoint, test, *seeds = key.split("/")
    first, last = map(int, seeds[0].split("-")) if seeds else (0, 1 << 30)
    row, _, rival = rows.partition(",")
    parts = []
    for study, name in zip(studies.split("+"), data.split("+"), strict=True):
        records = open_records(evidence / study)
        values = _between(records.values(name, row, endpoint, test), first, last)
        other = records.values(name, rival, endpoint, test) if rival else 0.0 * values
        parts.append((values - other).dropna())
    joined = pd.concat(parts)
    difference = paired(joined, 0.0 * joined)
    if difference is None:
        raise ValueError(f"there are no records of {key}.")
    return difference


def _written(mean: float, error: float, low: float, high: float, p: float) -> Iterator[str]:
    for digits, signed in product(range(4), (True, False)):
        value = Number(mean, error, digits, signed=signed)
        ends = [Number(end, None, digits, signed=signed) for end in (low, high)]
        yield from (str(value), value.printed, f"{ends[0]} to {ends[1]}")
        size = Number(abs(mean), error, digits)
        yield from (str(size), size.printed)
    for digits in (1, 2):
        yield f"{float(np.format_float_positional(p, digits, fractional=False, trim='-')):g}"
