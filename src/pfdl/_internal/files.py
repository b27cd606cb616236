"""Read regular files of bounded size, and write files whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
import uuid
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TEMPORARY = ".pfdl-partial-"
"""How the names of files begin that are not whole yet."""

MAX_TEXT = 1 << 26
"""Bytes. Larger JSON and CSV files are refused unread; the largest table of the paper has about six
million.
"""

SEPARATORS = ",;\t|"
"""What may stand between the cells of a CSV file."""

_SNIFFED_BYTES = 1 << 16

MAX_COLUMNS = 10_000
"""Wider tables are refused: a file of nothing but commas would otherwise fill the memory with empty
columns.
"""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that at any moment either the old one or the whole new one is there.

    A text is written in UTF-8, with its line ends as they stand, so that a hash of the text is a
    hash of the file.

    Raises:
        OSError: If it cannot be written, as on a full disk; then the old one is there still.
    """
    write_together({path: content})


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together: if one of them cannot be written, none of them changes.

    Each is written as by :func:`write_atomically`. They are exchanged in their order, so that only
    a kill between two exchanges can leave the new one of some beside the old one of others.

    Raises:
        OSError: If one cannot be written.
    """
    # Not tempfile, whose files only their owner may read: results are there to be shared, as the
    # umask allows.
    new = {path: path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}") for path in contents}
    path = Path()
    try:
        for path, temporary in new.items():
            content = contents[path]
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as stream:
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
        for path, temporary in new.items():
            temporary.replace(path)
    except BaseException as error:
        for temporary in new.values():
            with suppress(OSError):  # where nothing can be written, nothing can be removed
                temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        # It names the file that a user knows, not the temporary one.
        failure = type(error)(
            f"{path} cannot be written ({error.strerror or error}); what was there before is left."
        )
        failure.errno = error.errno
        raise failure from error


def read_bytes_file(path: Path, limit: int = MAX_TEXT) -> bytes:
    """Read a regular file of so many bytes at most, and nothing that could make the reader wait or
    never end.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is a folder, a pipe or a device, or has more bytes.
    """
    # Before it is opened, because to open a device can set it to work
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a regular file.")
    # The file may have been swapped since: without waiting for the other end of a pipe, and looked
    # at once more.
    with open(path, "rb", opener=_open_at_once) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file.")
        if status.st_size > limit:
            raise ValueError(f"{path} has {status.st_size} bytes; more than {limit} are not read.")
        # Not the limit, for which memory would be set aside
        content = stream.read(status.st_size + 1)
    # It grew meanwhile, or is one of those in /proc that claim to be empty
    if len(content) > status.st_size:
        raise ValueError(f"{path} has more than the {status.st_size} bytes that its size says.")
    return content


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(content: bytes, **options: Any) -> pd.DataFrame:
    """Return the table that bytes hold; ValueError if a line has more cells than the header."""
    import pandas as pd

    table: pd.DataFrame

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            table = pd.read_csv(io.BytesIO(content), **options)
        except pd.errors.ParserWarning:
            raise ValueError("its lines have more cells than its header has names") from None
    return table


def read_frame(path: Path, *, limit: int = MAX_TEXT, **options: Any) -> pd.DataFrame:
    """Read a CSV file, whichever of the ``SEPARATORS`` it has, or a Parquet file.

    Between semicolons, numbers may have decimal commas.

    Args:
        path: The file; Parquet if its name ends in ``.parquet``.
        limit: The most bytes it may have.
        options: Further arguments of ``pandas.read_csv``; Parquet has no use for them.

    Raises:
        OSError: If it cannot be read.
        ModuleNotFoundError: If it is a Parquet file and pyarrow is not installed.
        ValueError: If it is not a regular file, too large, too wide, or not a table in UTF-8.
    """
    import pandas as pd

    content = read_bytes_file(path, limit)
    table: pd.DataFrame
    try:
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(io.BytesIO(content))
        else:
            separator = _find_separator(
                content[:_SNIFFED_BYTES].decode("utf-8-sig", errors="replace")
            )
            if (columns := content.partition(b"\n")[0].count(separator.encode()) + 1) > MAX_COLUMNS:
                raise ValueError(f"it has {columns} columns; more than {MAX_COLUMNS} are not read")
            options = {"sep": separator, "encoding": "utf-8-sig", **options}
            if options["sep"] == separator:  # else the caller knows where the header is
                _refuse_repeated_names(content, separator)
                options["index_col"] = False  # else lines that are too long are read shifted
            table = _parse(content, **options)
            if separator == ";":
                other = _parse(content, **{"decimal": ",", **options})
                table = max(table, other, key=lambda frame: frame.select_dtypes("number").shape[1])
    except ImportError as error:
        raise ModuleNotFoundError(
            f"reading {path} needs pyarrow; install it, or the extra 'parquet' of pfdl."
        ) from error
    # pandas' own errors are ValueErrors, some of pyarrow's OSErrors
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is not a table in UTF-8 with a header ({' '.join(str(error).split())})."
        ) from error
    return table


def _refuse_repeated_names(content: bytes, separator: str) -> None:
    """Raise ValueError if two columns have one name: which of them is meant, nobody could tell."""
    import pandas as pd

    header = pd.read_csv(
        io.BytesIO(content), sep=separator, encoding="utf-8-sig", dtype=str, header=None, nrows=1
    )
    names = header.iloc[0].dropna()
    repeated = names[names.duplicated()]
    if len(repeated):
        raise ValueError(f"two columns are called {repeated.iloc[0]!r}; rename one")


def _find_separator(start: str) -> str:
    """Return what stands between the cells of a CSV file that starts so; a last line that is cut
    off does no harm.

    It splits the lines into most, and equally many, cells; if nothing does, it is what is most
    frequent in the header. (``csv.Sniffer`` takes minutes for some texts.)
    """
    lines = [line for line in start.splitlines()[:50] if line.strip()] or [""]

    whole = lines[:-1] or lines
    best = max(SEPARATORS, key=lambda separator: _count_cells(whole, separator))
    if _count_cells(whole, best) > 1:
        return best
    return max(SEPARATORS, key=lines[0].count)


def _count_cells(lines: Sequence[str], separator: str) -> int:
    """Return how many cells each line has; 0 where they have different numbers."""
    try:
        counts = {len(row) for row in csv.reader(lines, delimiter=separator)}
    except csv.Error:  # for what is no text at all
        return 0
    return counts.pop() if len(counts) == 1 else 0


def read_json(path: Path, limit: int = MAX_TEXT) -> Any:
    """Read a JSON file in UTF-8.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is something else, or has more bytes.
    """
    content = read_bytes_file(path, limit)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole JSON file ({error}).") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all, as :func:`format_json` does."""
    write_atomically(path, format_json(value))


def format_json(value: Any) -> str:
    """Return a value as JSON, with null in place of every NaN and infinity.

    JSON has no such numbers: Python would write words that other programs refuse to read.
    """
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
