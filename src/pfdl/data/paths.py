"""Paths inside a folder of images: listed without following links, and refused where they could lead out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pfdl.data.images import BadImageError

_FILE_MANAGERS = {"thumbs.db", "desktop.ini", "__macosx"}


class BadImage(NamedTuple):
    """A file that cannot be used, and the rest of the sentence that starts with its name."""

    path: str
    reason: str


def path_inside(root: Path, path: str) -> Path:
    """Return the file that a path names in a resolved folder; BadImageError if it leads out, by a link or otherwise."""
    check_relative(path)
    folder = str(root)
    target = os.path.realpath(f"{folder}/{path}")  # a loop of links stays one, and cannot be read
    if target != folder and not target.startswith(folder.rstrip(os.sep) + os.sep):
        raise BadImageError("is a symbolic link to a place outside the data folder, which is not followed")
    return Path(target)


def check_relative(path: str) -> None:
    """Raise BadImageError unless ``path`` can only name something below the data folder, on any system."""
    parts = path.replace("\\", "/").split("/")  # Windows takes either, and a drive where the second sign is a colon
    if not path or "\0" in path or not parts[0] or path[1:2] == ":" or ".." in parts:
        raise BadImageError("is not a path inside the data folder (it is empty, absolute, or has '..' in it)")


def list_paths_below(root: Path, bad: list[BadImage]) -> Iterator[str]:
    """Yield the files below a folder, relative to it; hidden ones and file managers' own are left out.

    What cannot be listed (a link to a folder, a name that is not valid Unicode, a locked folder) goes to ``bad``. A
    file may be a link: open it by :func:`path_inside`.
    """

    def unreadable(error: OSError) -> None:
        folder = Path(error.filename).relative_to(root).as_posix()
        bad.append(BadImage(folder, f"cannot be listed ({error.strerror})"))

    for folder, subfolders, files in os.walk(root, onerror=unreadable):
        here = Path(folder).relative_to(root).as_posix()
        prefix = "" if here == "." else f"{here}/"
        subfolders[:], shown = (sorted(filter(_is_shown, names)) for names in (subfolders, files))
        for name in [*subfolders, *shown]:
            if not _is_unicode(name):
                bad.append(BadImage(ascii(prefix + name), "has a name that is not valid Unicode; rename it"))
            elif name in subfolders and Path(folder, name).is_symlink():
                bad.append(BadImage(prefix + name, "is a symbolic link to a folder, which is not followed"))
        subfolders[:] = filter(_is_unicode, subfolders)
        yield from (prefix + name for name in shown if _is_unicode(name))


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in _FILE_MANAGERS


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
