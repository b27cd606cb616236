"""What a report reads: run folders, and the finished results, curves and evaluations in them.
Reading runs no code.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pfdl._internal.files import read_frame, read_json
from pfdl.runs import CONFIG, METRICS, Run, read_run

RESULTS = "results.csv"
TASK_FOLDERS = ("tasks", "cells")
MAX_DEPTH = 4
"""How deep a folder of folders is searched."""


def find_runs(paths: Sequence[Path], problems: list[str]) -> list[Run]:
    """Return the runs in some folders, each of which is a run or holds runs.

    Args:
        paths: Folders.
        problems: Where to add a sentence for everything that cannot be read.

    Returns:
        Each run once, in the order of the paths and then of the names. A run within a run belongs
        to that run and is not listed.
    """
    runs: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            problems.append(f"{path} is not a folder; name folders that commands of pfdl made.")
            continue
        folders = _run_folders(path, MAX_DEPTH, problems)
        if not folders:
            problems.append(
                f"{path} holds no run: there is no {CONFIG} in it, nor in folders within it."
            )
        for folder in folders:
            try:
                runs.setdefault(folder.resolve(), read_run(folder))
            except (OSError, ValueError) as error:
                problems.append(f"{folder} was left out: {error}")
    return list(runs.values())


def _run_folders(folder: Path, depth: int, problems: list[str]) -> list[Path]:
    if (folder / CONFIG).is_file():
        return [folder]
    if depth == 0:
        return []
    try:
        with os.scandir(folder) as entries:
            inner = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        problems.append(f"{folder} was left out: it cannot be read ({error.strerror}).")
        return []
    return [
        run
        for name in inner
        if name[0] != "."
        for run in _run_folders(folder / name, depth - 1, problems)
    ]


def read_results(
    run: Run,
    names: Sequence[str],
    numbers: Sequence[str],
    keys: Sequence[str],
    problems: list[str],
    *,
    file: str = RESULTS,
) -> pd.DataFrame:
    """Read the results of a run, of an unfinished one too.

    Args:
        run: The run.
        names: Columns of words that are needed.
        numbers: Columns of numbers that are needed.
        keys: Columns by which a result is known, so that none is taken twice; without any, all
            lines are kept.
        problems: Where to add a sentence for a file that cannot be used.
        file: The table in the run folder.

    Returns:
        What the table has and, as far as it is missing there, what finished tasks have. It may be
        empty.
    """
    parts = [pd.DataFrame(columns=[*names, *numbers])]
    for path in [run.folder / file, *_task_files(run)]:
        if not path.is_file():
            continue
        try:
            frame = read_frame(path) if path.name == file else pd.DataFrame(_rows_of(path))
            parts.append(_checked(frame, names, numbers))
        except (OSError, ValueError, OverflowError) as error:  # pandas' own errors are ValueErrors
            problems.append(f"{path} was left out: {_one_line(error)}")
    filled = [part for part in parts[1:] if len(part)]
    if not filled:
        return parts[0]
    joined = pd.concat(filled, ignore_index=True)
    return joined.drop_duplicates(list(keys), keep="first", ignore_index=True) if keys else joined


def _task_files(run: Run) -> list[Path]:
    return [path for name in TASK_FOLDERS for path in sorted((run.folder / name).glob("*.json"))]


def read_task(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a finished task of a grid left: its arguments, and its rows of results.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds something else.
    """
    stored = read_json(path)
    task, rows = (
        stored.get(name) if isinstance(stored, dict) else None for name in ("task", "rows")
    )
    if not isinstance(task, dict):
        raise ValueError(f"{path} does not say which task it is of.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} has no rows of results.")
    return task, rows


def _rows_of(path: Path) -> list[dict[str, Any]]:
    task, rows = read_task(path)
    return [{**task, **row} for row in rows]


def _checked(frame: pd.DataFrame, names: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    missing = [name for name in (*names, *numbers) if name not in frame.columns]
    if missing and len(frame):
        raise ValueError(f"it has no column {', '.join(missing)}.")
    frame = frame.reindex(columns=[*dict.fromkeys([*names, *numbers, *frame.columns])])
    words = {name: frame[name].astype(str) for name in names}
    return frame.assign(**words, **{name: _numeric(frame[name]) for name in numbers})


def _numeric(column: pd.Series[Any]) -> pd.Series[Any]:
    try:
        return pd.to_numeric(column).astype(float)
    except (TypeError, OverflowError) as error:  # a list, or an integer of hundreds of digits
        raise ValueError(
            f"its column {column.name} has an entry that is no number ({error})."
        ) from error


def read_metrics(run: Run, problems: list[str]) -> pd.DataFrame | None:
    """Return the curves of a training, a line for each epoch; None where there are none yet."""
    path = run.folder / METRICS
    if not path.is_file():
        return None
    try:
        frame = read_frame(path).apply(_numeric)
        if "epoch" not in frame.columns:
            raise ValueError("it has no column epoch.")
    except (OSError, ValueError) as error:
        problems.append(f"{path} was left out: {_one_line(error)}")
        return None
    # Without any line nothing says that they are numbers
    numbers: pd.DataFrame = frame.astype(float)
    return numbers


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
