"""Attacks on the journal of a sweep."""

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

from pfdl.vision.sweep_journal import JOURNAL, read_study
from tests.hostile.tampering import check_sentence, tampered, target
from tests.vision.quick_sweep import GRID, RANGE, run

CONFIGS = {"grid": GRID, "range": RANGE}


@cache
def made_sweep(name: str) -> Path:
    """The folder of a sweep that has ended."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(CONFIGS[name], folder / "run")
    return folder / "run"


def records_of(name: str) -> list[Any]:
    return [json.loads(line) for line in lines_of(name)]


def lines_of(name: str) -> list[bytes]:
    return (made_sweep(name) / JOURNAL).read_bytes().splitlines()


def as_journal(records: list[Any]) -> bytes:
    return b"".join(json.dumps(record, default=str).encode() + b"\n" for record in records)


changed_bytes = st.lists(st.tuples(st.floats(0, 0.99), st.binary(max_size=3)), max_size=2)


@st.composite
def journals_of(draw: st.DrawFn, name: str) -> bytes:
    """Journals with lines exchanged, lost or told otherwise, cut off, or with other bytes."""
    records = draw(tampered(records_of(name)) | st.just(records_of(name)))
    kept = [record for record in records if draw(st.integers(0, 9))]
    content = bytearray(as_journal(kept))
    for place, new in draw(changed_bytes):
        start = int(place * len(content))
        content[start : start + len(new)] = new
    return bytes(content[: len(content) - draw(st.sampled_from([0, 0, 1, 40]))])


def with_line(name: str, number: int, line: bytes) -> bytes:
    lines = lines_of(name)
    lines[number:number] = [line]
    return b"\n".join(lines) + b"\n"


@target(
    lambda: (
        st.sampled_from(sorted(CONFIGS)).flatmap(
            lambda name: st.tuples(st.just(name), journals_of(name))
        ),
    ),
    lambda: [
        (("grid", content),)
        for content in (
            b"",
            b"{",
            b"\n",
            b"[" * 50_000 + b"\n",
            with_line("grid", 9, b"["),
            with_line("grid", len(lines_of("grid")), b"["),
            b"\n".join([*lines_of("grid")[:12], b"[", b""]),  # the sweep writes on behind it
            *(as_journal(records_of("grid")[:n] + records_of("grid")[n + 1 :]) for n in range(9)),
        )
    ],
)
def journals(folder: Path, case: tuple[str, bytes]) -> None:
    name, content = case
    shutil.copytree(made_sweep(name), folder, dirs_exist_ok=True)
    (folder / JOURNAL).write_bytes(content)
    is_refused = refused(name, folder)
    table, best = run(CONFIGS[name], folder)
    results = pd.read_csv(folder / "results.csv")
    assert len(results) == CONFIGS[name].number
    assert results["value"].between(50, 70).all()
    assert is_refused == (folder / f"{JOURNAL}.damaged").exists()
    if name == "grid":
        assert (table, best) == run(GRID, made_sweep(name))


def refused(name: str, folder: Path) -> bool:
    try:
        read_study(folder, CONFIGS[name])
    except ValueError as error:
        check_sentence(error)
        return True
    return False
