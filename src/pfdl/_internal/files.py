"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

TEMPORARY = ".pfdl-partial-"
"""How the names of files begin that are not whole yet."""


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file so that at any moment either the old one or the whole new one is there.

    Line ends are written as they stand in ``text`` on every system, so that a hash of the text is a hash of the file.
    """
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any moment either the old one or the whole new one is there.

    Raises:
        OSError: If it cannot be written, as on a full disk; then the old one is there still.
    """
    # Not tempfile, whose files only their owner may read: results are there to be shared, as the umask allows.
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        failure = type(error)(f"{path} cannot be written ({error.strerror or error}); what was there before is left.")
        failure.errno = error.errno
        raise failure from error


def read_json(path: Path) -> Any:
    """Read a JSON file in UTF-8.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is something else.
    """
    return parse_json(path, path.read_bytes())


def parse_json(path: Path, content: bytes) -> Any:
    """The same of what was read already; the path is for the sentence."""
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole JSON file ({error}).") from error
