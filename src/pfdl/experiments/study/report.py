"""The study as a page: each method's paired difference to plain training, in one table and data set by data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pfdl._internal.files import read_table, write_atomically
from pfdl.experiments.pairing import paired
from pfdl.experiments.study.rows import BASELINES, ENTRIES
from pfdl.experiments.study.run import AGREEMENT, COLUMNS, DIVERGED, ESS, NUMBER

NOT_ACCURACY = (ESS, NUMBER, AGREEMENT, DIVERGED)
NONE, TOGETHER = "–", "\u00a0"
"""What stands for nothing, and a space that does not break in a narrow column."""


def write_report(results: pd.DataFrame, folder: Path, *, command: str) -> list[Path]:
    """Write ``table.md`` beside ``results.csv``.

    Args:
        results: See :func:`pfdl.experiments.study.run.run`.
        folder: Where to write.
        command: What the user typed.

    Returns:
        Both files.
    """
    page = f"# Study of methods under context shift\n\n`{command}`\n\n{describe(results)}\n"
    write_atomically(folder / "table.md", page)
    return [folder / "results.csv", folder / "table.md"]


def read_results(paths: Sequence[Path]) -> pd.DataFrame:
    """The results of one or more runs as one; what several have is taken from the first.

    Args:
        paths: Files ``results.csv``.

    Returns:
        The lines, see :func:`pfdl.experiments.study.run.run`.

    Raises:
        ValueError: If a file is not of a study.
    """
    parts = []
    for path in paths:
        try:
            parts.append(read_table(path, usecols=list(COLUMNS), dtype={"seed": int, "value": float}))
        except ValueError as error:  # pandas' own errors are ValueErrors
            raise ValueError(f"{path} does not hold the results of a study: {error}") from error
    results = pd.concat(parts, ignore_index=True).drop_duplicates(list(COLUMNS[:-1]))
    if unknown := set(results["row"]) - set(ENTRIES):
        raise ValueError(
            f"results.csv has rows that this version does not know: {', '.join(sorted(map(str, unknown)))}."
        )
    return results


def describe(results: pd.DataFrame, *, against: str | None = None) -> str:
    """The tables as Markdown, with a sentence on how to read them.

    Args:
        results: See :func:`pfdl.experiments.study.run.run`.
        against: What every row is compared with; plain training of the same kind where this is None.

    Returns:
        One table of all data sets, then one for each.
    """
    rival = "plain training (with the same batch size, width and weights of classes)"
    parts = [
        f"Accuracy in percent, mean over paired seeds, and the difference to "
        f"{rival if against is None else ENTRIES[against].title} on the same splits and first weights ± its standard "
        "error; p is of a paired t-test, uncorrected for the number of rows. The last epoch counts; nothing is "
        "selected. Oracles know the true contexts of training samples.",
        "## Where contexts shift most\n\nDifferences, beyond two standard errors in bold; a number in brackets is that "
        "of the seeds, where it is not the number above. A training that diverged counts with what was left of it.",
        overview(results, against=against),
    ]
    for arena, part in results.groupby("arena", sort=False):
        parts += [f"## {arena}", details(part, against=against)]
    return "\n\n".join(parts)


def overview(results: pd.DataFrame, *, against: str | None = None) -> str:
    """One table for all data sets, where contexts shift most; what is compared with shows its accuracy."""
    arenas = {arena: _by_row(part, tests_of(part)[0]) for arena, part in results.groupby("arena", sort=False)}
    most = {arena: int(wide.notna().sum().max()) for arena, wide in arenas.items()}
    lines = [
        f"| method | {' | '.join(map(str, arenas))} |",
        "|---" * (len(arenas) + 1) + "|",
        f"| *seeds* | {' | '.join(map(str, most.values()))} |",
    ]
    for row in rows_of(results):
        cells = [
            _short(wide, row, against or BASELINES.get(row, "erm"), most[arena]) + _diverged(results, row, arena)
            for arena, wide in arenas.items()
        ]
        lines.append(f"| {ENTRIES[row].title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def details(part: pd.DataFrame, *, against: str | None = None) -> str:
    """All tests of one data set."""
    arena = part["arena"].iloc[0]
    tests = tests_of(part)
    wide = {test: _by_row(part, test) for test in (*tests, NUMBER, AGREEMENT)}
    lines = [
        f"| method | seeds | {' | '.join(tests)} | contexts found | their agreement with the true ones |",
        "|---" * (len(tests) + 4) + "|",
    ]
    for row in rows_of(part):
        cells = [_long(wide[test], row, against or BASELINES.get(row, "erm")) for test in tests]
        found = [wide[key][row].mean() if row in wide[key] else None for key in (NUMBER, AGREEMENT)]
        cells += [
            NONE if pd.isna(value) else f"{value:.{digits}f}" for value, digits in zip(found, (1, 2), strict=True)
        ]
        seeds = wide[tests[0]][row].count()
        lines.append(f"| {ENTRIES[row].title} | {seeds}{_diverged(part, row, arena)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows_of(results: pd.DataFrame) -> list[str]:
    """The rows there are, in the order of ``ENTRIES``."""
    present = set(results["row"])
    return [row for row in ENTRIES if row in present]


def tests_of(part: pd.DataFrame) -> list[str]:
    """The test sets in their order, the hardest first."""
    return [test for test in dict.fromkeys(part["test"]) if test not in NOT_ACCURACY]


def _by_row(part: pd.DataFrame, test: str) -> pd.DataFrame:
    """One line per seed, one column per row."""
    return part[part["test"] == test].pivot_table(index="seed", columns="row", values="value")


def _diverged(results: pd.DataFrame, row: str, arena: object) -> str:
    number = len(results[(results["row"] == row) & (results["arena"] == arena) & (results["test"] == DIVERGED)])
    return f", {number} diverged" if number else ""


def _short(wide: pd.DataFrame, row: str, baseline: str, most: int) -> str:
    if row not in wide or baseline not in wide:
        return NONE
    if row == baseline:
        return f"{wide[row].mean():.1f}"
    difference = paired(wide[row].dropna(), wide[baseline].dropna())
    if difference is None or difference.pairs < 2:
        return NONE
    fewer = f" ({difference.pairs})" if difference.pairs < most else ""
    if difference.standard_error == 0:
        return f"{difference.mean:+.2f}{fewer}"
    mark = "**" if abs(difference.mean) > 2 * difference.standard_error else ""
    return f"{mark}{difference.mean:+.2f}{TOGETHER}±{TOGETHER}{difference.standard_error:.2f}{mark}{fewer}"


def _long(wide: pd.DataFrame, row: str, baseline: str) -> str:
    mean = f"{wide[row].mean():.1f}"
    if row == baseline or baseline not in wide:
        return mean
    difference = paired(wide[row].dropna(), wide[baseline].dropna())
    if difference is None or difference.pairs < 2:
        return mean
    if difference.standard_error == 0:
        return f"{mean} ({difference.mean:+.2f} ± 0)"
    return f"{mean} ({difference.mean:+.2f} ± {difference.standard_error:.2f}, p = {difference.p_value:.2g})"
