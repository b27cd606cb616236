"""Images listed in a metadata table, as Waterbirds, CelebA and WILDS publish theirs."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pfdl._internal.files import read_frame
from pfdl._internal.text import quoted
from pfdl._internal.validation import check_choice
from pfdl.data.images import BadImage, BadImageError, check_relative, path_inside
from pfdl.data.layout import SPLIT_NAMES
from pfdl.data.sources import Listing, Sample

if TYPE_CHECKING:
    import pandas as pd

CELEBA_TEXT = ".txt"
"""Ending of the two tables of CelebA as its authors publish them; others have CSV files of the same
content.
"""

TABLES = (".csv", ".tsv", ".parquet", CELEBA_TEXT)
"""Endings of the names of files that are tables."""

_CELEBA_ATTRIBUTES = "list_attr_celeba"
_CELEBA_SPLITS = "list_eval_partition"

MAX_BYTES = 1 << 30
"""Larger tables are refused; that of CelebA has 26 million bytes."""

WILDS_SPLITS = {"0": "train", "1": "validation", "2": "test"}

_USUAL_NAMES = {
    "path": (
        "path",
        "file_name",
        "filename",
        "img_filename",
        "image_path",
        "file",
        "image",
        "image_id",
    ),
    "label": ("label", "y", "class", "target", "class_name"),
    "context": ("context", "place", "background", "domain", "environment"),
    "split": ("split", "partition"),
    "group": (),
}
"""Column names that are recognised without being named, by what they hold; the first one present is
taken.
"""


def find_columns(
    table: Path,
    names: Sequence[str],
    given: Mapping[str, str],
    needed: Sequence[str] = ("path", "label"),
) -> dict[str, str]:
    """Return which of a table's columns holds what; ValueError if a named one is missing, or one
    that is needed.

    ``given`` are the columns that the user named, by what they hold (path, label, context, split,
    group).
    """
    for role in given:
        check_choice("what a column holds", role, _USUAL_NAMES)
    columns: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        if role in given and given[role] not in names:
            raise ValueError(f"{table} has no column {given[role]!r}; it has {quoted(names)}.")
        guesses = [name for name in names if name.lower() in usual]
        guesses.sort(key=lambda name: usual.index(name.lower()))
        if role in given or guesses:
            columns[role] = given.get(role) or guesses[0]
        elif role in needed:
            raise ValueError(
                f"{table} has no column called {' or '.join(usual)}; say which of"
                f" {quoted(names)} is the {role} (on the command line: --columns"
                f" {role}=NAME)."
            )
    return columns


def is_table(path: Path) -> bool:
    """Return whether a file is a table of images by its name; a text file is one only under
    CelebA's names.
    """
    ending = path.suffix.lower()
    return ending in TABLES and (
        ending != CELEBA_TEXT or path.stem in (_CELEBA_ATTRIBUTES, _CELEBA_SPLITS)
    )


def list_table(
    root: Path,
    table: Path,
    columns: Mapping[str, str] | None = None,
    hints: Mapping[str, str] | None = None,
    searches: bool = False,
) -> Listing:
    """List the images that a table names.

    The table has a line for each: CSV (any of ``, ; tab |`` between the cells), Parquet, or CelebA.
    A label or context of −1 and 1, as CelebA's attributes have, is named after its column: "not
    Male" and "Male".

    Args:
        root: The folder that paths are relative to.
        table: The file.
        columns: Which column holds what, as in :func:`pfdl.data.open_images`.
        hints: Which column holds what, if it is there; looked for before the usual names.
        searches: Whether to look for the images in the folders below ``root`` if the first one is
            not in it.

    Raises:
        ValueError: If a column is missing, or no images of at least two classes are named.
    """
    cells = _read_cells(table)
    names = list(cells.columns)
    usable = {
        role: name for role, name in (hints or {}).items() if role in _USUAL_NAMES and name in names
    }
    found = find_columns(table, names, {**usable, **(columns or {})})
    prefix = _find_prefix(root, cells[found["path"]]) if searches else ""
    samples, bad, other_sets = _use_lines(_list_lines(cells, found), prefix, "split" in found)
    classes = sorted({sample.class_name for sample in samples.values()})
    if not classes:
        raise ValueError(f"{table} names no image that could be used{_reasons(bad, other_sets)}.")
    if len(classes) < 2:
        raise ValueError(
            f"{table} has the one class {classes[0]!r} under {found['label']!r}; at least two are"
            " needed."
        )
    notes = []
    for name, count in other_sets.items():
        notes.append(
            f"Left out: {count} images whose entry under {found['split']!r} is {name!r}, which is"
            " none of train, val, test."
        )
    if prefix:
        notes.append(f"The images of {table.name} were found in {prefix!r}.")
    description = {"kind": "table", "columns": found, "notes": notes}
    return Listing(sorted(samples.values()), bad, description)


def _list_lines(cells: pd.DataFrame, columns: Mapping[str, str]) -> list[Sample]:
    """Return the lines of a table, whose columns were found, as they stand."""

    def column(role: str) -> list[str]:
        return cells[columns[role]].tolist() if role in columns else [""] * len(cells)

    by_role = {role: column(role) for role in _USUAL_NAMES}
    for role in ("label", "context"):
        by_role[role] = _name_cells(by_role[role], columns.get(role, ""))
    return [
        Sample(path, label, context, split=split, group=group)
        for path, label, context, split, group in zip(*by_role.values(), strict=True)
    ]


def _use_lines(
    lines: Sequence[Sample], prefix: str, has_sets: bool
) -> tuple[dict[str, Sample], list[BadImage], Counter[str]]:
    """Return the images by their paths, what cannot be used, and how many lines are in no known
    set.
    """
    samples: dict[str, Sample] = {}
    bad: list[BadImage] = []
    other_sets: Counter[str] = Counter()
    for line in lines:
        path = _locate(prefix, line.path)
        split = SPLIT_NAMES.get(line.split.lower()) or WILDS_SPLITS.get(line.split, "")
        if has_sets and not split:
            other_sets[line.split] += 1
        elif reason := _why_unusable(path, line.class_name, samples):
            bad.append(BadImage(path or "(an empty path)", reason))
        else:
            samples[path] = line._replace(path=path, split=split)
    return samples, bad, other_sets


def list_paths(
    table: Path, path_column: str | None = None, image_root: str | Path | None = None
) -> list[Path]:
    """List the images that a table names, in its order, whatever else it says of them.

    Column and folder are found as :func:`list_table` does. ValueError if a path leads out of the
    folder.
    """
    cells = _read_cells(table)
    given = {} if path_column is None else {"path": path_column}
    column = find_columns(table, list(cells.columns), given, needed=("path",))["path"]
    root = Path(image_root or table.parent).resolve()
    prefix = "" if image_root else _find_prefix(root, cells[column])
    paths = []
    for entry in cells[column].tolist():
        try:
            paths.append(path_inside(root, _locate(prefix, entry)))
        except BadImageError as error:
            raise ValueError(f"{entry!r} under {column!r} in {table} {error}.") from error
    return paths


def _find_prefix(root: Path, paths: Iterable[str]) -> str:
    """Return the folder below the table's, with a ``/``, in which the first image is; ``""`` for
    the table's own.

    CelebA's images are in ``img_align_celeba``, iWildCam's in ``train``, and no table says so.
    """
    first = _locate("", next(filter(None, paths), ""))
    try:
        check_relative(first)
    except BadImageError:
        return ""
    if os.path.lexists(root / first):
        return ""
    folders: list[Path] = []
    for outer in _folders_in(root):
        folders += [outer, *_folders_in(outer)]
    having = [folder for folder in folders if (folder / first).is_file()]
    return f"{having[0].relative_to(root).as_posix()}/" if len(having) == 1 else ""


def _why_unusable(path: str, label: str, seen: Collection[str]) -> str:
    try:
        check_relative(path)
    except BadImageError as error:
        return str(error)
    if not label:
        return "has no label in the table"
    return "is listed twice in the table" if path in seen else ""


def _reasons(bad: list[BadImage], other_sets: Counter[str]) -> str:
    if bad:
        return f"; the first one {bad[0].path!r} {bad[0].reason}"
    if other_sets:
        return f": its sets are {quoted(other_sets)} instead of train, val and test (or 0, 1 and 2)"
    return ""


def _locate(prefix: str, entry: str) -> str:
    """Return where an image lies that a cell names; ``""`` if the cell is empty."""
    return prefix + PurePosixPath(entry.replace("\\", "/")).as_posix() if entry else ""


def _folders_in(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())


def _name_cells(cells: Sequence[str], column: str) -> list[str]:
    """Return names in Unicode's composed form; where cells are −1 and 1, whether each is what the
    column is called.
    """
    if set(cells) == {"-1", "1"}:
        return [column if cell == "1" else f"not {column}" for cell in cells]
    return [unicodedata.normalize("NFC", cell) for cell in cells]


def _read_cells(path: Path) -> pd.DataFrame:
    """Read all cells as text, with ``""`` for what is missing; to CelebA's attributes its sets are
    added.
    """
    ending = path.suffix.lower()
    how: dict[str, Any] = {"limit": MAX_BYTES, "dtype": str, "keep_default_na": False}
    if ending == ".parquet":
        # 1 for a whole number of any type
        cells = read_frame(path, limit=MAX_BYTES).convert_dtypes().astype(object)
    elif ending != CELEBA_TEXT:
        cells = read_frame(path, **how)
    elif path.stem == _CELEBA_SPLITS:
        cells = read_frame(path, **how, sep=r"\s+", names=["image_id", "partition"])
    else:
        # Their number, the names of the attributes, and lines that begin with the image's name.
        cells = read_frame(path, **how, sep=r"\s+", skiprows=1).reset_index(names="image_id")
    cells = cells.rename(columns=str)
    cells = cells.map(lambda cell: str(cell).strip(), na_action="ignore").fillna("")
    if not path.stem.startswith(_CELEBA_ATTRIBUTES) or "partition" in cells.columns:
        return cells
    partition = path.with_stem(path.stem.replace(_CELEBA_ATTRIBUTES, _CELEBA_SPLITS))
    if partition.is_file():
        sets = dict(_read_cells(partition).iloc[:, :2].itertuples(index=False, name=None))
        cells["partition"] = [sets.get(name, "") for name in cells.iloc[:, 0]]
    return cells
