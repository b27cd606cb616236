"""A table of a model's answers, wherever the model was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pfdl._internal.files import read_frame
from pfdl.data.images import (
    BadImageError,
    check_relative,
    hash_bytes,
    path_inside,
    read_bytes,
)
from pfdl.data.layout import SPLIT_NAMES
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ImageFiles, Sample

NEEDED = ("path", "label", "prediction")
OPTIONAL = ("context", "split")
SPLITS = {"": "test", **SPLIT_NAMES}
"""What a cell of the column split may say, and the set that it means."""


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Images, and the class that a model gives to each.

    Attributes:
        manifest: The images and the sets that they are in: ``test`` where the table says nothing.
        predictions: By path; ``""`` for training images without one.
        named: The images by name, of which features may be known.
        source: The same, where a folder was named in which they lie; else None.
    """

    manifest: Manifest
    predictions: Mapping[str, str]
    named: ImageFiles
    source: ImageFiles | None

    def of(self, rows: Sequence[ManifestRow]) -> NDArray[np.str_]:
        """Return the answers to some images."""
        return np.array([self.predictions[row.path] for row in rows])


def read_answers(path: Path, root: Path | None = None) -> AnswerTable:
    """Read a table of answers.

    Args:
        path: A ``.csv``, ``.tsv`` or ``.parquet`` file with the columns ``path``, ``label`` and
            ``prediction``, and if they are known ``context`` and ``split`` (train, val or test).
            Training images say which contexts are usual; they need no prediction.
        root: The folder that the paths start in; None where the images are not at hand.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If a column or an image is missing, or a cell cannot be used.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no table of predictions {path}.")
    if root is not None and not root.is_dir():
        raise FileNotFoundError(f"there is no folder of images {root}.")
    frame = _read_lines(path)
    samples = []
    rows = []
    for name, label, context, split in frame[[*NEEDED[:2], *OPTIONAL]].itertuples(index=False):
        digest = _hash(root, name)
        side = "test" if split == "test" else "train"
        samples.append(Sample(name, label, context, digest, digest, split))
        rows.append(ManifestRow(name, label, context, digest, side, (split,)))
    try:
        manifest = Manifest(tuple(rows), {"protocol": "predictions", "dominant": {}})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    predictions = dict(zip(frame["path"], frame["prediction"], strict=True))
    images = ImageFiles.listed(root or Path(), samples, {"kind": "predictions"})
    return AnswerTable(manifest, predictions, images, None if root is None else images)


def _read_lines(path: Path) -> pd.DataFrame:
    """Return the lines of a table as words, in the order of the paths; ValueError unless each has
    what it needs.
    """
    frame = read_frame(path, dtype=str, keep_default_na=False).astype(str)
    if lacking := [name for name in NEEDED if name not in frame]:
        raise ValueError(
            f"{path} has no column {lacking[0]!r}; it needs {', '.join(NEEDED)}, and may have"
            f" {' and '.join(OPTIONAL)}."
        )
    for name in OPTIONAL:
        if name not in frame:
            frame[name] = ""
    frame["split"] = _read_splits(path, frame["split"])
    _check_cells(path, frame)
    return frame.sort_values("path", kind="stable")


def _read_splits(path: Path, column: pd.Series[str]) -> pd.Series[str]:
    """Return the set of each line by our names; ValueError for a word that is no set."""
    words = column.str.strip().str.lower()
    if unknown := sorted(set(words) - set(SPLITS)):
        raise ValueError(f"{path} has the split {unknown[0]!r}; give train, val or test.")
    return words.map(SPLITS)


def _check_cells(path: Path, frame: pd.DataFrame) -> None:
    """Raise ValueError unless every line has what it needs."""
    if "test" not in set(frame["split"]):
        raise ValueError(f"{path} has no image to test on: one whose split is test, or empty.")
    judged = frame["split"] != "train"
    for name, lines in (("path", frame), ("label", frame), ("prediction", frame[judged])):
        if (lines[name] == "").any():
            where = lines.index[lines[name] == ""][0] + 2  # a line for the header, counted from 1
            raise ValueError(f"{path} has no {name} in line {where}.")
    predictions = frame["prediction"][judged]
    if predictions.isin(frame["label"]).sum() == 0:
        raise ValueError(
            f"{path} has no prediction that is a label; call the classes alike in both columns: a"
            f" prediction is {predictions.iloc[0]!r}, a label {frame['label'].iloc[0]!r}."
        )
    doubled = frame["path"][frame["path"].duplicated()]
    if len(doubled):
        raise ValueError(f"{path} has {doubled.iloc[0]!r} twice; give one line for each image.")
    for name in frame["path"]:
        try:
            check_relative(name)
        except BadImageError as error:
            raise ValueError(
                f"{path} has the path {name!r}, which {error}; give paths below the folder of"
                " images."
            ) from None


def _hash(root: Path | None, name: str) -> str:
    """Return the hash of an image's file, or of its name where the files are not at hand."""
    if root is None:
        return hash_bytes(name.encode())
    try:
        return hash_bytes(read_bytes(path_inside(root.resolve(), name)))
    except (BadImageError, OSError) as error:
        raise ValueError(f"the image {name!r} of the table, in {root}: {error}.") from None
