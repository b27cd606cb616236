"""Attacks on what the laboratory reads: digits, groups of images, results, metrics and folders of
runs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.hostile.file_targets import any_bytes, as_table, special_file
from tests.hostile.tampering import answered, records, target, values, words

from pfdl.runs import CONFIG, METRICS, Run
from pfdl_lab.digits import _read_file
from pfdl_lab.images.data import read_groups
from pfdl_lab.report.reading import RESULTS, Columns, find_runs, read_metrics, read_results
from tests.hostile import state_targets

NAMES = (CONFIG, METRICS, RESULTS, "m.csv", "tasks/a.json")
cells = (
    words
    | st.floats().map(str)
    | st.sampled_from(["1e999", "9" * 400, "-", '"', "True", "0x10", "1_0", "١"])
)


def tables(*heading: str) -> st.SearchStrategy[bytes]:
    rows = st.lists(st.lists(cells, min_size=1, max_size=5), max_size=4)
    return rows.map(lambda rows: as_table(heading, rows)) | st.binary(max_size=60)


def read_everything(folder: Path) -> list[Any]:
    """What each reader of a folder answers; None where it refuses."""
    run = Run(folder, "mmads", {}, {})
    problems = []
    read_results(run, Columns(("method",), ("value",)), problems)
    read_metrics(run, problems)
    answered(read_groups, f"{folder / 'm.csv'}:a")
    return [*(answered(_read_file, folder / name, "") for name in NAMES), *find_runs([folder], [])]


bytes_in_the_place_of_any_file = any_bytes(NAMES, read_everything)
special_files = special_file(NAMES, read_everything)


@target(state_targets.run_folders_with_a_byte_changed.strategies, share=0.4)
def run_folders_that_are_looked_for(folder: Path, name: str, place: float, change: int) -> None:
    state_targets.copy_and_change(folder, name, place, change)
    find_runs([folder], [])


@target(lambda: (st.binary(max_size=40), st.integers(0, 30)), lambda: [(b"", 9), (b"content", 1)])
def files_of_mnist(folder: Path, content: bytes, cut: int) -> None:
    packed = gzip.compress(content)
    (folder / "labels.gz").write_bytes(packed[: len(packed) - cut])
    found = answered(_read_file, folder / "labels.gz", hashlib.md5(content).hexdigest())
    assert found == content if cut == 0 else found in (None, content)


@target(
    lambda: (
        tables("method", "value", "seed"),
        records(
            task=records(method=words, seed=values),
            rows=st.lists(records(value=values, method=words), max_size=3),
        ),
    ),
    lambda: [(b"method,value\nOLS,1\n", {"task": {}, "rows": [{"method": "a", "value": 10**400}]})],
)
def results(folder: Path, table: bytes, task: Any) -> None:
    (folder / RESULTS).write_bytes(table)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "a.json").write_text(json.dumps(task))
    problems: list[str] = []
    frame = read_results(
        Run(folder, "mmads", {}, {}),
        Columns(("method",), ("value", "seed"), ("method", "seed")),
        problems,
    )
    assert {"method", "value", "seed"} <= set(frame.columns)
    assert all("\n" not in problem for problem in problems)


@target(lambda: (tables("epoch", "train_loss"),))
def metrics(folder: Path, table: bytes) -> None:
    (folder / METRICS).write_bytes(table)
    problems: list[str] = []
    frame = read_metrics(Run(folder, "training", {}, {}), problems)
    assert frame is None or all(kind == float for kind in frame.dtypes)  # noqa: E721, pandas' dtypes equal Python's
    assert all("\n" not in problem for problem in problems)
