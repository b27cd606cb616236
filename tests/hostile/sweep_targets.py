"""Attacks on what a sweep keeps of its trials."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from pfdl.vision.sweep_journal import TRIALS
from tests.hostile.tampering import tampered, target
from tests.vision.quick_sweep import GRID, RANGE, run

CONFIGS = {"grid": GRID, "range": RANGE}


@cache
def made_sweep(name: str) -> Path:
    """The folder of a sweep that has ended."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(CONFIGS[name], folder / "run")
    return folder / "run"


@cache
def trials_of(name: str) -> list[Any]:
    trials: list[Any] = json.loads((made_sweep(name) / TRIALS).read_bytes())
    return trials


@target(
    lambda: (
        st.sampled_from(sorted(CONFIGS)).flatmap(
            lambda name: st.tuples(st.just(name), tampered(trials_of(name)))
        ),
        st.sampled_from([0, 0, 1, 40]),
    ),
    lambda: [
        (("grid", trials), 0)
        for trials in ([], {}, None, 7, [None], [[]], [{}], trials_of("grid")[1:])
    ],
)
def trials_of_sweeps(folder: Path, case: tuple[str, Any], cut: int) -> None:
    """Whatever they are, the sweep ends with a result for each candidate."""
    name, trials = case
    shutil.copytree(made_sweep(name), folder, dirs_exist_ok=True)
    content = json.dumps(trials, default=str).encode()
    (folder / TRIALS).write_bytes(content[: len(content) - cut])
    run(CONFIGS[name], folder)
    results = pd.read_csv(folder / "results.csv")
    assert len(results) >= CONFIGS[name].number
    assert results["state"].isin(["COMPLETE", "FAIL"]).all()
