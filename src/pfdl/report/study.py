"""The study as a page: for every data set, each method's accuracy and its paired difference to plain training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from scipy.stats import ttest_1samp

from pfdl._files import write_atomically
from pfdl.experiments.study import AGREEMENT, ESS, NUMBER
from pfdl.experiments.study_rows import BASELINES, ENTRIES
from pfdl.selection import paired_difference

NOT_ACCURACY = (ESS, NUMBER, AGREEMENT)


def write_report(results: pd.DataFrame, folder: Path, *, command: str) -> list[Path]:
    """Write ``table.md`` beside ``results.csv``.

    Args:
        results: See :func:`pfdl.experiments.study.run`.
        folder: Where to write.
        command: What the user typed.

    Returns:
        Both files.
    """
    parts = [
        f"# Study of methods under context shift\n\n`{command}`",
        "Accuracy in percent, mean over paired seeds; in brackets the difference to plain training (with the "
        "same batch size, width and weights of classes) on the same splits and first weights ± its standard error, and "
        "p of a paired t-test, uncorrected for the number of rows. The last epoch counts; nothing is selected. Oracles "
        "know the true contexts of training samples.",
    ]
    for arena, part in results.groupby("arena", sort=False):
        parts += [f"## {arena}", _table(part)]
    write_atomically(folder / "table.md", "\n\n".join(parts) + "\n")
    return [folder / "results.csv", folder / "table.md"]


def _table(part: pd.DataFrame) -> str:
    tests = [test for test in part["test"].unique() if test not in NOT_ACCURACY]
    wide = part.pivot_table(index=["row", "seed"], columns="test", values="value")
    rows = list(dict.fromkeys(part["row"]))
    lines = [
        f"| method | seeds | {' | '.join(tests)} | contexts found | their agreement with the true ones |",
        "|---" * (len(tests) + 4) + "|",
    ]
    for row in rows:
        ours = wide.loc[row]
        baseline = BASELINES.get(row, "erm")
        plain = wide.loc[baseline] if baseline in rows and baseline != row else None
        cells = [_cell(ours[test], None if plain is None else plain[test]) for test in tests]
        found = [ours.get(key, pd.Series(dtype=float)).mean() for key in (NUMBER, AGREEMENT)]
        cells += ["–" if pd.isna(value) else f"{value:.{digits}f}" for value, digits in zip(found, (1, 2), strict=True)]
        lines.append(f"| {ENTRIES[row].title} | {len(ours)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(ours: pd.Series[float], plain: pd.Series[float] | None) -> str:
    mean = f"{ours.mean():.1f}"
    if plain is None:
        return mean
    both = ours.index.intersection(plain.index)
    first, second = ours[both].tolist(), plain[both].tolist()
    if len(both) < 2:
        return mean
    difference = paired_difference(first, second)
    if difference.standard_error == 0:
        return f"{mean} ({difference.mean:+.2f} ± 0)"
    chance = float(ttest_1samp([one - other for one, other in zip(first, second, strict=True)], 0.0).pvalue)
    return f"{mean} ({difference.mean:+.2f} ± {difference.standard_error:.2f}, p = {chance:.2g})"
