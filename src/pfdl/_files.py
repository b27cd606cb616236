"""Files written whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file so that at any moment either the old one or the whole new one is there.

    Line ends are written as they stand in ``text`` on every system, so that a hash of the text is a hash of the file.
    """
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any moment either the old one or the whole new one is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile, whose files only their owner may read: results are there to be shared, as the umask allows.
    temporary = path.with_name(f".pfdl-{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
