"""Attacks on readers of features and of predictions, which `pfdl embed` and `pfdl predict` write
and people send to each other.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from pfdl.data.features import FeatureTable, read_features, write_features
from pfdl.vision.answers import AnswerTable, read_answers
from tests.data.image_files import encoded, noise
from tests.hostile.tampering import (
    UNDAMAGED,
    Damage,
    answered,
    damaged,
    damages,
    encode,
    target,
    words,
)

ARRAYS = ("paths", "sha256", "features", "network", "fingerprint")
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


class Malicious:
    """An object whose pickle ends the test."""

    def __reduce__(self):
        return pytest.fail, ("reading a file has run code",)


def as_npy(array: NDArray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def as_npz(arrays: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


SOUND = {
    "paths": as_npy(np.array(["a.png", "b.png"])),
    "features": as_npy(np.arange(6.0).reshape(2, 3)),
}


def with_header(header: str) -> bytes:
    """Return a file of features whose matrix says this of itself, in numpy's own words."""
    padded = header.encode().ljust(117) + b"\n"
    matrix = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(48)
    return as_npz({**SOUND, "features": matrix})


def with_password() -> bytes:
    """Return a file of features that says that its parts are encrypted."""
    content = bytearray(as_npz(SOUND))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(signature)
        while start >= 0:
            content[start + place] |= 1
            start = content.find(signature, start + 1)
    return bytes(content)


any_array = npst.arrays(
    npst.scalar_dtypes() | npst.unicode_string_dtypes(max_len=4),
    npst.array_shapes(min_dims=0, max_side=4),
).map(as_npy)


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Archives with some arrays that fit together, some of any kind, some of any bytes, and some
    that are missing.
    """
    rows = draw(st.integers(0, 4))
    fitting = {
        "paths": npst.arrays("U4", rows),
        "sha256": npst.arrays("U4", rows),
        "features": npst.arrays(draw(npst.floating_dtypes() | npst.integer_dtypes()), (rows, 3)),
        "network": npst.arrays("U4", ()),
        "fingerprint": npst.arrays("U4", ()),
    }
    arrays = {}
    for name in ARRAYS:
        kind = draw(st.sampled_from(["fitting"] * 20 + ["any array", "any bytes", "missing"]))
        if kind == "fitting":
            arrays[name] = as_npy(draw(fitting[name]))
        elif kind != "missing":
            arrays[name] = draw(any_array if kind == "any array" else st.binary(max_size=80))
    return as_npz(arrays, draw(st.sampled_from(COMPRESSIONS)))


@target(
    lambda: (archives(), damages),
    lambda: [
        (as_npz({**SOUND, "paths": as_npy(np.array([Malicious()], dtype=object))}),),
        (as_npz({**SOUND, "paths": pickle.dumps(Malicious())}),),
        (pickle.dumps(Malicious()),),
        (with_password(),),
        (with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999, 99999)}"),),
        (with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -3)}"),),
        (with_header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}"),),
        (with_header("{'descr': " + "[" * 90 + "}"),),
        (with_header("__import__('pytest').fail('reading a file has run code')"),),
    ],
)
def files_of_features(folder: Path, content: bytes, damage: Damage = UNDAMAGED) -> None:
    """What is read is written and read again as it was."""
    path = folder / "features.npz"
    path.write_bytes(damaged(content, damage))
    table = answered(read_features, path)
    if table is None:
        return
    assert np.isfinite(table.matrix).all()
    assert len(table.paths) == len(table.sha256) == len(table.matrix) > 0
    write_features(path, table)
    again = read_features(path)
    np.testing.assert_array_equal(again.matrix, table.matrix)
    assert described(again) == described(table)


def described(table: FeatureTable) -> tuple[object, ...]:
    return table.paths, table.sha256, table.network, table.fingerprint


HEADING = ("path", "label", "prediction", "context", "split")
lines = st.tuples(
    st.sampled_from(["a.png", "b/c.png", "../d.png", "/e.png", "link.png", "none.png"]) | words,
    st.sampled_from(["cat", "dog"]) | words,
    st.sampled_from(["cat", "dog", ""]) | words,
    st.sampled_from(["red", "blue", ""]) | words,
    st.sampled_from(["test", "train", "val", ""]) | words,
)
PICTURE = encoded(noise(0))


@target(
    lambda: (
        st.permutations(HEADING) | st.sampled_from([HEADING[:3], HEADING[:2], HEADING[1:]]),
        st.lists(lines, max_size=4),
        st.sampled_from([",", ";", "\t", "|"]),
        damages,
        st.booleans(),
    ),
    lambda: [
        (HEADING, [(path, "cat", "dog", "", "")], ",", UNDAMAGED, True)
        for path in ("a.png", "../d.png", "link.png", "/etc/passwd", "a\0b", "b/../../d.png")
    ],
)
def tables_of_predictions(
    folder: Path,
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    separator: str,
    damage: Damage,
    has_images: bool,
) -> None:
    """A table that is read names no file outside the folder, and is what a table made of it is."""
    columns = [HEADING.index(name) for name in heading]
    lines = [separator.join(row[column] for column in columns) for row in [HEADING, *rows]]
    path = folder / "predictions.csv"
    path.write_bytes(damaged(encode("\n".join(lines)), damage))
    answers = answered(read_answers, path, make_images(folder) if has_images else None)
    if answers is not None:
        check_answers(answers)
        check_again(folder / "again.csv", answers)


def make_images(folder: Path) -> Path:
    """Make two images, one outside of the folder, and a link that leads to it."""
    root = folder / "images"
    (root / "b").mkdir(parents=True)
    for name in ("a.png", "b/c.png", "../d.png"):
        (root / name).write_bytes(PICTURE)
    (root / "link.png").symlink_to(folder / "d.png")
    return root


def check_answers(answers: AnswerTable) -> None:
    """Check that each image has what it needs, and that none is opened outside of the folder."""
    read = answers.manifest.rows
    assert {row.path for row in read} == set(answers.predictions)
    assert all(answers.predictions[row.path] for row in read if "train" not in row.sets)
    if answers.source is not None:
        assert {row.path for row in read} <= {"a.png", "b/c.png"}
        for row in read:
            answers.source.load(row.path, 4, row.sha256)


def check_again(path: Path, answers: AnswerTable) -> None:
    """Write a table with what was read, and read the same."""
    lines = [
        (row.path, row.class_name, answers.predictions[row.path], row.context, row.sets[0])
        for row in answers.manifest.rows
    ]
    pd.DataFrame(lines, columns=HEADING).to_csv(path, index=False)
    again = read_answers(path)
    assert again.predictions == answers.predictions
    assert [row[:3] for row in again.manifest.rows] == [row[:3] for row in answers.manifest.rows]
