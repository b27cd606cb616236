"""A split of images into training, validation and test sets, kept as a CSV file and a JSON file
beside it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pfdl._internal.files import format_json, read_bytes_file, read_json, write_together
from pfdl._internal.text import printable, quoted
from pfdl.data.images import BadImageError, check_relative, hash_bytes

FORMAT = "pfdl-manifest-1"
COLUMNS = ("path", "class", "context", "sha256", "side", "sets")

NO_CONTEXT = "no context"
"""What the context ``""`` is called where other images have one."""

_MOST_NAMED = 8
"""So many classes or contexts are named in a description; of more, the first ones."""


class ManifestRow(NamedTuple):
    """One image.

    Attributes:
        path: Its name in the data folder, with ``/`` between the parts.
        class_name: Its class.
        context: Its context; ``""`` if there are none.
        sha256: Hash of the file's content.
        side: ``"train"`` or ``"test"``: the part of the data that it may be drawn from.
        sets: The sets it was drawn for, if any: ``train`` or ``validation``; ``test`` and
            ``test-1:5`` to ``test-5:1``.
    """

    path: str
    class_name: str
    context: str
    sha256: str
    side: str
    sets: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """Which image is in which set.

    Args:
        rows: Every usable image, in the order of the paths.
        parameters: How the split came about, as written to the JSON file: among others ``seed``,
            ``ratio``, ``dominant`` (the dominant context of every class) and ``notes``.

    Raises:
        ValueError: If a row is not valid, or an image is on the training side and on the test side.
    """

    rows: tuple[ManifestRow, ...]
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        for row in self.rows:
            _check_row(row)
        for path, count in Counter(row.path for row in self.rows).most_common(1):
            if count > 1:
                raise ValueError(
                    f"the manifest names {path!r} twice; make it again with pfdl split."
                )
        trained = {row.sha256: row.path for row in self.rows if row.side == "train"}
        leaks = [row for row in self.rows if row.side == "test" and row.sha256 in trained]
        if leaks:
            first = leaks[0]
            raise ValueError(
                f"{len(leaks)} image(s) are on the training side and on the test side, such as"
                f" {trained[first.sha256]!r} and {first.path!r}, which have the same content; make"
                " the manifest again with pfdl split."
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes, sorted; a label is a position in this tuple."""
        return tuple(sorted({row.class_name for row in self.rows}))

    @property
    def has_contexts(self) -> bool:
        """Return whether the training images come with contexts (all images, if there is no
        training set).
        """
        trained = [row for row in self.rows if "train" in row.sets]
        return any(row.context for row in trained or self.rows)

    @property
    def contexts(self) -> tuple[str, ...]:
        """Return the names of the contexts of all classes, sorted; a context label is a position in
        this tuple.
        """
        return tuple(sorted({row.context for row in self.rows}))

    @property
    def dominant(self) -> Mapping[str, str]:
        """Return the dominant context of every class."""
        dominant: Mapping[str, str] = self.parameters["dominant"]
        return dominant

    @property
    def notes(self) -> Sequence[str]:
        """Return what a user should know about how the split came about."""
        notes: Sequence[str] = self.parameters.get("notes", ())
        return notes

    @property
    def set_names(self) -> tuple[str, ...]:
        """Return the names of the sets that have images: train, validation, test, then the tests by
        ratio.
        """
        names = set[str]().union(*(row.sets for row in self.rows))
        return tuple(sorted(names, key=_set_order))

    def rows_of(self, set_name: str) -> tuple[ManifestRow, ...]:
        """Return the images of a set, in the order of the paths; ValueError if there is no such
        set.
        """
        rows = tuple(row for row in self.rows if set_name in row.sets)
        if not rows:
            raise ValueError(
                f"the manifest has no set {set_name!r}; it has {quoted(self.set_names)}."
            )
        return rows

    def numbers_of(self, set_name: str) -> tuple[list[int], list[int]]:
        """Return the places of a set's labels in ``classes`` and of its contexts in
        ``contexts``.
        """
        rows = self.rows_of(set_name)
        class_of = {name: number for number, name in enumerate(self.classes)}
        context_of = {name: number for number, name in enumerate(self.contexts)}
        return [class_of[row.class_name] for row in rows], [context_of[row.context] for row in rows]

    def describe(self) -> str:
        """Say in two lines what was understood: classes and contexts, and how many images each set
        has.
        """
        where = "without contexts"
        if any(self.contexts):
            contexts = [name or NO_CONTEXT for name in self.contexts]
            where = f"in {_counted(contexts, 'context', 'contexts')}"
        layout = self.parameters.get("source", {}).get("layout")
        how = f"; folders read as {printable(layout)}" if layout else ""
        whose = ", as the data has them" if self.parameters.get("protocol") == "own" else ""
        sizes = ", ".join(f"{name} {len(self.rows_of(name))}" for name in self.set_names)
        classes = _counted(self.classes, "class", "classes")
        return f"Images: {len(self.rows)}, of {classes}, {where}{how}.\nSets{whose}: {sizes}."

    @property
    def sha256(self) -> str:
        """Return the hash of the CSV file, the same for the same images in the same sets."""
        return hash_bytes(self._table().encode())

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the CSV file and, beside it, the JSON file: if one of them cannot be written,
        neither changes.

        The JSON file comes last and holds the hash of the CSV file, so a pair that does not belong
        together is noticed.

        Args:
            path: Where the CSV file goes; its name must end in ``.csv``.

        Returns:
            The two files.

        Raises:
            ValueError: If the name does not end in ``.csv``.
        """
        csv_path, json_path = _pair(Path(path))
        parameters = {"format": FORMAT, **self.parameters, "csv_sha256": self.sha256}
        write_together({csv_path: self._table(), json_path: format_json(parameters)})
        return csv_path, json_path

    def _table(self) -> str:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*row[:-1], " ".join(row.sets)] for row in self.rows)
        return table.getvalue()


def read_manifest(path: str | Path) -> Manifest:
    """Read a manifest and check it.

    Args:
        path: The CSV file; the JSON file of the same name must lie beside it.

    Returns:
        The manifest, as it was saved.

    Raises:
        FileNotFoundError: If one of the two files is missing.
        ValueError: If they are damaged or do not belong together, a path leaves the data folder, or
            an image is on the training side and on the test side.
    """
    csv_path, json_path = _pair(Path(path))
    for part in (csv_path, json_path):
        if not part.exists():
            raise FileNotFoundError(
                f"there is no file {part} (a manifest is a .csv and a .json file of one name)."
            )
    content = read_bytes_file(csv_path)
    parameters = read_json(json_path)
    _check_parameters(json_path, parameters)
    del parameters["format"]
    if hash_bytes(content) != parameters.pop("csv_sha256", None):
        raise ValueError(
            f"{csv_path} is not the table that {json_path.name} was written with; restore the pair,"
            " or make it again with pfdl split."
        )
    try:  # to the letter: read_frame would guess separators and kinds
        table = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{csv_path} is not a CSV file in UTF-8 ({error}).") from error
    if not table or tuple(table[0]) != COLUMNS or any(len(line) != len(COLUMNS) for line in table):
        raise ValueError(
            f"{csv_path} does not have the columns {', '.join(COLUMNS)}; make it again with pfdl"
            " split."
        )
    try:
        rows = (ManifestRow._make([*facts, tuple(sets.split())]) for *facts, sets in table[1:])
        return Manifest(tuple(rows), parameters)
    except ValueError as error:
        raise ValueError(f"{csv_path}: {error}") from error


def _check_row(row: ManifestRow) -> None:
    try:
        check_relative(row.path)
    except BadImageError as error:
        raise ValueError(f"the path {row.path!r} {error}.") from error
    if not re.fullmatch("[0-9a-f]{64}", row.sha256):
        raise ValueError(
            f"the hash of {row.path!r} is {row.sha256!r}; a SHA-256 has 64 hexadecimal digits."
        )
    if row.side not in ("train", "test"):
        raise ValueError(f"the side of {row.path!r} is {row.side!r}; it must be 'train' or 'test'.")
    for name in row.sets:
        if not re.fullmatch(r"train|validation|test(-[1-9][0-9]{0,8}:[1-9][0-9]{0,8})?", name):
            raise ValueError(f"{row.path!r} is in a set {name!r}, which is no set of this format.")
        if name.startswith("test") != (row.side == "test"):
            raise ValueError(f"{row.path!r} is on the {row.side} side but in the set {name!r}.")
    if "train" in row.sets and "validation" in row.sets:
        raise ValueError(f"{row.path!r} is in the training set and in the validation set.")


def _counted(names: Sequence[str], singular: str, plural: str) -> str:
    shown = ", ".join(map(printable, names[:_MOST_NAMED]))
    if len(names) > _MOST_NAMED:
        shown += ", …"
    return f"{len(names)} {singular if len(names) == 1 else plural} ({shown})"


def _set_order(name: str) -> tuple[int, float]:
    if name.startswith("test-"):
        dominant, minor = name.removeprefix("test-").split(":")
        return 3, int(dominant) / int(minor)
    return ("train", "validation", "test").index(name), 0.0


def _pair(path: Path) -> tuple[Path, Path]:
    if path.suffix != ".csv":
        raise ValueError(
            f"the manifest is {str(path)!r}; its name must end in .csv (a .json file is kept beside"
            " it)."
        )
    return path, path.with_suffix(".json")


def _check_parameters(path: Path, parameters: Any) -> None:
    if not isinstance(parameters, dict) or parameters.get("format") != FORMAT:
        raise ValueError(
            f"{path} is not the parameter file of a manifest in the format {FORMAT!r}."
        )
    told = {"notes": [], "source": {}, **parameters}
    kinds = {"dominant": dict, "notes": list, "source": dict}
    is_whole = all(isinstance(told.get(name), kind) for name, kind in kinds.items())
    if is_whole:
        words = [*told["dominant"].values(), *told["notes"]]
        is_whole = all(isinstance(word, str) for word in words)
    if not is_whole:
        raise ValueError(
            f"{path} does not say which context is dominant in which class, where the images come"
            " from, or what is to be noted about them; make the manifest again with pfdl split."
        )
