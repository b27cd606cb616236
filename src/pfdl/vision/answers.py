"""A table of a model's answers, wherever the model was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from pfdl._internal.files import read_frame
from pfdl.data.images import (
    BadImageError,
    check_relative,
    decoded,
    hash_bytes,
    path_inside,
    read_bytes,
    to_tensor,
)
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import Sample

NEEDED = ("path", "label", "prediction")
OPTIONAL = ("context", "split")
SPLITS = {
    "": "test",
    "test": "test",
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}
"""What a cell of the column split may say, and the set that it means."""


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Images, and the class that a model gives to each.

    Attributes:
        manifest: The images and the sets that they are in: ``test`` where the table says nothing.
        predictions: By path; ``""`` for training images without one.
        source: The images themselves; None where no folder was named.
    """

    manifest: Manifest
    predictions: Mapping[str, str]
    source: PredictedImages | None

    @property
    def named(self) -> PredictedImages:
        """Return the images by name alone, of which features may be known."""
        rows = self.manifest.rows
        samples = [Sample(row.path, row.class_name, row.context) for row in rows]
        return self.source or PredictedImages(Path(), samples)


class PredictedImages:
    """The images of a table of answers, in a folder: a source like any other.

    Attributes:
        samples: One for each line of the table, in the order of the paths.
    """

    def __init__(self, root: Path, samples: Sequence[Sample]) -> None:
        self.root = root.resolve()
        self.samples = tuple(samples)

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are."""
        return {"kind": "predictions"}

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size)."""
        try:
            content = read_bytes(path_inside(self.root, path))
            if hash_bytes(content) != sha256:
                raise BadImageError("has changed meanwhile")
            with decoded(content) as image:
                return to_tensor(image, size)
        except BadImageError as error:
            raise ValueError(f"{path!r} in {self.root} {error}.") from error


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
    frame = frame.sort_values("path", kind="stable")
    hashes = [_hash(root, name) for name in frame["path"]]
    columns = (frame[name].tolist() for name in ("path", "label", "context", "split"))
    samples = [
        Sample(name, label, context, hashed, hashed, split)
        for name, label, context, split, hashed in zip(*columns, hashes, strict=True)
    ]
    rows = tuple(
        ManifestRow(*sample[:4], "test" if sample.split == "test" else "train", (sample.split,))
        for sample in samples
    )
    try:
        manifest = Manifest(rows, {"protocol": "predictions", "dominant": {}})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    predictions = dict(zip(frame["path"], frame["prediction"], strict=True))
    return AnswerTable(
        manifest, predictions, None if root is None else PredictedImages(root, samples)
    )


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
