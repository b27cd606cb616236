"""Images listed in a metadata table, as Waterbirds, CelebA and WILDS publish theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pfdl.data.images import BadImageError
from pfdl.data.layout import SPLIT_NAMES, BadImage, FoundFile, check_relative, path_inside
from pfdl.data.sources import FileSource

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".parquet")
"""Endings of the names of files that are tables."""

WILDS_SPLITS = {"0": "train", "1": "validation", "2": "test"}

_USUAL_NAMES = {
    "path": ("path", "file_name", "filename", "img_filename", "image_path", "file", "image", "image_id"),
    "label": ("label", "y", "class", "target", "class_name"),
    "context": ("context", "place", "background", "domain", "environment"),
    "split": ("split", "partition"),
    "group": (),
}
"""Column names that are recognised without being named; the first one present is taken."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a metadata table; None where the usual names are to be looked for.

    Args:
        path: Path of the image, relative to the folder of the table.
        label: The class.
        context: The context.
        split: The set: train, val or test; or 0, 1 or 2, as WILDS has it.
        group: Images with the same entry (a patient, a background) stay on one side of a split. Never guessed.
    """

    path: str | None = None
    label: str | None = None
    context: str | None = None
    split: str | None = None
    group: str | None = None

    @property
    def are_given(self) -> bool:
        """Return whether any column is named."""
        return any(value is not None for value in asdict(self).values())

    def find(
        self,
        table: Path,
        names: list[str],
        hints: Mapping[str, str] | None = None,
        needed: Sequence[str] = ("path", "label"),
    ) -> Columns:
        """Return the columns that a table really has.

        Args:
            table: The file, for messages.
            names: Its columns.
            hints: By what they hold, names to look for before the usual ones.
            needed: What there must be a column for.

        Raises:
            ValueError: If a named column is missing, or there is none for what is needed.
        """
        found: dict[str, str | None] = {}
        for role in _ROLES:
            given = getattr(self, role)
            if given is not None and given not in names:
                raise ValueError(f"{table} has no column {given!r}; it has {', '.join(map(repr, names))}.")
            hint = (hints or {}).get(role)
            guesses = [name for usual in _USUAL_NAMES[role] for name in names if name.lower() == usual]
            found[role] = given or next((name for name in (hint, *guesses) if name in names), None)
        for role in needed:
            if found[role] is None:
                raise ValueError(
                    f"{table} has no column called {' or '.join(_USUAL_NAMES[role])}; say which of "
                    f"{', '.join(map(repr, names))} is the {role} (on the command line: --columns {role}=NAME)."
                )
        return replace(self, **found)


_ROLES = [field.name for field in fields(Columns)]


class MetadataTable(FileSource):
    """Images listed in a table with a line for each: a CSV file (any of ``, ; tab |`` between the cells) or Parquet.

    Args:
        table: The file.
        columns: Which column says what.
        hints: By what they hold, names of columns to look for before the usual ones.
        on_bad_image: ``"error"`` to refuse a table with unusable files, ``"skip"`` to leave them out.
        on_progress: Called with the number of files checked so far and the number of all files.

    Raises:
        FileNotFoundError: If there is no such table.

    Attributes:
        table: The file.
        columns: The columns as found; as given before ``samples`` is asked for.
    """

    def __init__(
        self,
        table: str | Path,
        *,
        columns: Columns | None = None,
        hints: Mapping[str, str] | None = None,
        on_bad_image: str = "error",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.table = Path(table)
        if not self.table.is_file():
            raise FileNotFoundError(f"there is no file {table}; name a table of images (CSV or Parquet).")
        super().__init__(self.table.parent, on_bad_image=on_bad_image, on_progress=on_progress)
        self.columns = columns or Columns()
        self._hints = hints
        self._other_sets: Counter[str] = Counter()

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest: among others, which columns were read."""
        left_out = self.left_out()  # reads the table, and so finds the columns
        return {
            "kind": "table",
            "columns": {role: name for role, name in asdict(self.columns).items() if name is not None},
            "left_out": left_out,
            "notes": [
                f"Left out: {count} images whose entry under {self.columns.split!r} is {name!r}, which is none of "
                "train, val, test."
                for name, count in self._other_sets.items()
            ],
        }

    def list_files(self) -> tuple[list[FoundFile], list[BadImage]]:
        """List the files that the table names."""
        cells = _read_cells(self.table)
        self.columns = columns = self.columns.find(self.table, list(cells.columns), self._hints)
        blank = [""] * len(cells)
        lists = [blank if name is None else cells[name].tolist() for name in asdict(columns).values()]
        self._other_sets.clear()
        found: list[FoundFile] = []
        bad: list[BadImage] = []
        seen: set[str] = set()
        for entry, label, context, split, group in zip(*lists, strict=True):
            path = PurePosixPath(entry.replace("\\", "/")).as_posix() if entry else ""
            part = SPLIT_NAMES.get(split.lower()) or WILDS_SPLITS.get(split, "")
            if columns.split is not None and not part:
                self._other_sets[split] += 1
            elif reason := _why_unusable(path, label, seen):
                bad.append(BadImage(path or "(an empty path)", reason))
            else:
                seen.add(path)
                found.append(FoundFile(path, label, context, part, group))
        if not found:
            raise ValueError(f"{self.table} names no image that could be used{_reasons(bad, self._other_sets)}.")
        classes = sorted({file.class_name for file in found})
        if len(classes) < 2:
            raise ValueError(
                f"{self.table} has the one class {classes[0]!r} under {columns.label!r}; at least two are needed."
            )
        return sorted(found), bad


def list_paths(table: Path, path_column: str | None = None) -> list[Path]:
    """List the images that a table names, whatever else it says of them.

    Args:
        table: A CSV or Parquet file.
        path_column: Its column of paths; by default one of the usual names.

    Returns:
        The files, in the order of the table; paths are relative to its folder.

    Raises:
        ValueError: If there is no such column, or a path leads out of the folder.
    """
    cells = _read_cells(table)
    column = Columns(path=path_column).find(table, list(cells.columns), needed=("path",)).path
    root = table.parent.resolve()
    found = []
    for entry in cells[column].tolist():
        try:
            found.append(path_inside(root, PurePosixPath(entry.replace("\\", "/")).as_posix() if entry else ""))
        except BadImageError as error:
            raise ValueError(f"{entry!r} under {column!r} in {table} {error}.") from error
    return found


def _why_unusable(path: str, label: str, seen: set[str]) -> str:
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
        return f": its sets are {', '.join(map(repr, other_sets))} instead of train, val and test (or 0, 1 and 2)"
    return ""


def _read_cells(path: Path) -> pd.DataFrame:
    """Read all cells as text, with ``""`` for what is missing."""
    import pandas as pd

    try:
        if path.suffix.lower() == ".parquet":
            cells = _as_text(pd.read_parquet(path))
        else:
            cells = pd.read_csv(path, sep=_separator(path), dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ImportError as error:
        raise ModuleNotFoundError(f"reading {path} needs pyarrow: pip install pyarrow.") from error
    except ValueError as error:  # pandas' own errors are ValueErrors
        raise ValueError(f"{path} is not a table in UTF-8 with a header ({' '.join(str(error).split())}).") from error
    return pd.DataFrame({str(name): cells[name].str.strip() for name in cells.columns})


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Write numbers as people do: 1 for a whole number, whatever its type."""
    import pandas as pd

    def write(value: Any) -> str:
        if pd.isna(value):
            return ""
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return pd.DataFrame({str(name): [write(value) for value in table[name].tolist()] for name in table.columns})


def _separator(path: Path) -> str:
    """Return what stands between the names in the header most often."""
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        header = stream.readline()
    return max((",", ";", "\t", "|"), key=header.count)
