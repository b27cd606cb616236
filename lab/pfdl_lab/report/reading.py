"""What a report reads: run folders, and the finished results, curves and evaluations in them.
Reading runs no code.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pfdl._internal.files import MAX_TEXT, read_frame, read_json
from pfdl.runs import CONFIG, METRICS, Run, read_run

RESULTS = "results.csv"
PACKED = ".csv.gz"
"""The table of a run; and how the names of those in an archive end."""
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
        folders = _run_folders(path, problems)
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


def _run_folders(path: Path, problems: list[str]) -> list[Path]:
    found = list[Path]()

    def leave_out(error: OSError) -> None:
        problems.append(f"{error.filename} was left out: it cannot be read ({error.strerror}).")

    for place, folders, files in os.walk(path, onerror=leave_out):
        folder = Path(place)
        depth = len(folder.relative_to(path).parts)
        if CONFIG in files:
            found.append(folder)
        is_end = CONFIG in files or depth == MAX_DEPTH
        folders[:] = [] if is_end else sorted(name for name in folders if name[0] != ".")
    return found


class Columns(NamedTuple):
    """The columns that a section of the report needs.

    Attributes:
        words: Columns of words.
        numbers: Columns of numbers.
        keys: Columns by which a result is known, so that none is taken twice; without any, all
            lines are kept.
    """

    words: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table whose columns have their types.

        Raises:
            ValueError: If a column is missing, or has an entry that is no number.
        """
        needed = [*self.words, *self.numbers]
        missing = [name for name in needed if name not in frame.columns]
        if missing and len(frame):
            raise ValueError(f"it has no column {', '.join(missing)}.")
        frame = frame.reindex(columns=list(dict.fromkeys([*needed, *frame.columns])))
        for name in self.words:
            frame[name] = frame[name].astype(str)
        for name in self.numbers:
            frame[name] = _numeric(frame[name])
        return frame


def read_results(run: Run, columns: Columns, problems: list[str]) -> pd.DataFrame:
    """Read the results of a run; those of an unfinished one are its finished tasks.

    Args:
        run: The run.
        columns: What must be there.
        problems: Where to add a sentence for a file that cannot be used.

    Returns:
        All tables of the run together. Where an archive holds several, a column ``table`` names the
        one that a line is from.
    """
    tables = table_files(run.folder)
    parts = list[pd.DataFrame]()
    for path in [*tables, *task_files(run)]:
        try:
            frame = read_table(path) if path in tables else pd.DataFrame(_rows_of(path))
            part = columns.check(frame)
            if path.name == RESULTS:
                _check_seeds(part, run)
        except (OSError, ValueError, OverflowError) as error:  # pandas' own errors are ValueErrors
            problems.append(f"{path} was left out: {_one_line(error)}")
            continue
        if len(tables) > 1:
            part["table"] = path.name.partition(".")[0]
        if len(part):
            parts.append(part)
    if not parts:
        return pd.DataFrame(columns=[*columns.words, *columns.numbers])
    joined = pd.concat(parts, ignore_index=True)
    if not columns.keys:
        return joined
    keys = [key for key in (*columns.keys, "table") if key in joined]
    return joined.drop_duplicates(keys, keep="first", ignore_index=True)


def _check_seeds(results: pd.DataFrame, run: Run) -> None:
    """Raise ValueError if a finished run has results of seeds that it did not ask for."""
    seeds = run.settings.get("seeds")
    first = run.settings.get("first_seed")
    if not isinstance(seeds, int) or not isinstance(first, int) or "seed" not in results:
        return
    others = results["seed"][~results["seed"].between(first, first + seeds - 1)]
    if len(others):
        raise ValueError(
            f"it has results of seed {others.iloc[0]:g}, and its run has the seeds {first} to"
            f" {first + seeds - 1}."
        )


def table_files(folder: Path) -> list[Path]:
    """Return the tables of a run folder: its ``results.csv``, or the compressed ones of an
    archive.
    """
    if (folder / RESULTS).is_file():
        return [folder / RESULTS]
    return sorted(folder.glob(f"*{PACKED}"))


def read_table(path: Path) -> pd.DataFrame:
    """Read a table of results, compressed or not.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged, too large or no table.
    """
    if path.suffix != ".gz":
        return read_frame(path)
    try:
        with gzip.open(path) as stream:
            content = stream.read(MAX_TEXT + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked ({error})") from error
    if len(content) > MAX_TEXT:
        raise ValueError(f"it holds more than {MAX_TEXT:,} bytes.")
    return pd.read_csv(io.BytesIO(content), keep_default_na=True, low_memory=False)


def task_files(run: Run) -> list[Path]:
    """Return the files of single tasks, which a run keeps until it is finished."""
    folders = [run.folder / name for name in TASK_FOLDERS]
    return list(chain.from_iterable(sorted(folder.glob("*.json")) for folder in folders))


def read_task(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what a finished task of a grid left: its arguments, and its rows of results.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds something else.
    """
    return check_task(read_json(path), path)


def check_task(stored: Any, path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the arguments and the rows of a task that a file has kept; ValueError for anything
    else.
    """
    kept = stored if isinstance(stored, dict) else {}
    task = kept.get("task")
    rows = kept.get("rows")
    if not isinstance(task, dict):
        raise ValueError(f"{path} does not say which task it is of.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} has no rows of results.")
    return task, rows


def _rows_of(path: Path) -> list[dict[str, Any]]:
    task, rows = read_task(path)
    return [{**task, **row} for row in rows]


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
        _check_epochs(frame, run)
    except (OSError, ValueError) as error:
        problems.append(f"{path} was left out: {_one_line(error)}")
        return None
    # Without any line nothing says that they are numbers
    numbers: pd.DataFrame = frame.astype(float)
    return numbers


def _check_epochs(curves: pd.DataFrame, run: Run) -> None:
    """Raise ValueError if curves are longer than the training of the run."""
    training = run.settings.get("training")
    epochs = training.get("epochs") if isinstance(training, dict) else None
    if isinstance(epochs, int) and (curves["epoch"] >= epochs).any():
        last = curves["epoch"].max()
        raise ValueError(f"it has epoch {last + 1:g}, and its run has {epochs} epochs.")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
