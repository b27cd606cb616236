"""Which files of a folder are images of which class and context, told by the folder names alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from pfdl.data.images import BadImageError

LAYOUTS = {2: "class/image", 3: "class/context/image", 4: "superclass/class/context/image"}
"""The known layouts, by the number of parts of a path."""

_LITTER = {"thumbs.db", "desktop.ini", "__macosx"}


class FoundFile(NamedTuple):
    """A file where an image should be."""

    path: str
    class_name: str
    context: str


class BadImage(NamedTuple):
    """A file that cannot be used, and the rest of the sentence that starts with its name."""

    path: str
    reason: str


def find_files(root: Path, superclass: str | None = None) -> tuple[list[FoundFile], list[BadImage]]:
    """List the files of a folder by class and context.

    The layout is that of most files; a file at another depth is reported. Files right in ``root`` (a README, a table),
    hidden files and the litter of file managers are passed over.

    Args:
        root: The folder.
        superclass: Which folder of the top level to use.

    Returns:
        The files in the order of their paths, and what cannot be used.

    Raises:
        ValueError: If no layout is recognised, or it has superclasses and none is chosen, or there is one class only.
    """
    top = root if superclass is None else root / _single_part(superclass)
    if not top.is_dir():
        folders = ", ".join(repr(entry.name) for entry in sorted(root.iterdir()) if entry.is_dir())
        raise ValueError(f"superclass is {superclass!r} but {root} holds {folders or 'no folders'}; name one of them.")
    bad: list[BadImage] = []
    paths = sorted(_walk(root, top, bad))
    offset = 0 if superclass is None else 1
    depths = Counter(path.count("/") + 1 - offset for path in paths)
    depth = max(depths, key=lambda parts: (depths[parts], parts), default=0)
    if depth not in LAYOUTS or (superclass is not None and depth == 4):
        raise ValueError(
            f"{top} holds no images in a known layout; arrange them as {' or '.join(map(repr, LAYOUTS.values()))}."
        )
    if depth == 4:
        superclasses = sorted({path.split("/")[0] for path in paths if path.count("/") == 3})
        if len(superclasses) > 1:
            raise ValueError(
                f"{root} has images as {LAYOUTS[4]!r}; choose one superclass of {', '.join(map(repr, superclasses))} "
                "(on the command line: --superclass)."
            )
        offset, depth = 1, 3
    found = []
    for path in paths:
        parts = path.split("/")[offset:]
        if len(parts) == depth:
            found.append(FoundFile(path, parts[0], parts[1] if depth == 3 else ""))
        else:
            bad.append(BadImage(path, f"does not lie where this folder has its images, in {LAYOUTS[depth]!r}"))
    classes = sorted({file.class_name for file in found})
    if len(classes) < 2:
        raise ValueError(f"{top} has the one class {classes[0]!r}; there is nothing to tell apart with fewer than two.")
    return found, bad


def path_inside(root: Path, path: str) -> Path:
    """The file that a path of a manifest names.

    Args:
        root: The data folder, resolved.
        path: The path, with ``/`` between its parts.

    Returns:
        The file, not necessarily existing.

    Raises:
        BadImageError: If it is absolute, has ``..`` in it, or leads out of the folder through a symbolic link.
    """
    check_relative(path)
    try:
        target = (root / path).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        raise BadImageError(f"cannot be followed ({error})") from error
    if not target.is_relative_to(root):
        raise BadImageError("is a symbolic link to a place outside the data folder, which is not followed")
    return target


def check_relative(path: str) -> None:
    """Raise BadImageError unless ``path`` can only name something below the data folder, on any system."""
    windows = PureWindowsPath(path)
    if not path or "\0" in path or path.startswith("/") or windows.drive or windows.root or ".." in windows.parts:
        raise BadImageError("is not a path inside the data folder (it is empty, absolute, or has '..' in it)")


def _single_part(name: str) -> str:
    if len(PurePosixPath(name).parts) != 1 or name in (".", ".."):
        raise ValueError(f"superclass is {name!r}; give the name of one folder, without '/'.")
    return name


def _walk(root: Path, top: Path, bad: list[BadImage]) -> Iterator[str]:
    """Paths of the files below ``top``, relative to ``root``; what cannot be one goes to ``bad``."""

    def unreadable(error: OSError) -> None:
        folder = Path(error.filename).relative_to(root).as_posix()
        bad.append(BadImage(folder, f"cannot be listed ({error.strerror})"))

    for folder, subfolders, files in os.walk(top, onerror=unreadable):
        here = Path(folder).relative_to(root)
        for name in [*subfolders, *files]:
            path = (here / name).as_posix()
            if _is_litter(name) or (name in files and Path(folder) == top):
                continue
            if not _is_unicode(path):
                bad.append(BadImage(ascii(path), "has a name that is not valid Unicode; rename it"))
            elif name in files:
                yield path
            elif (root / path).is_symlink():
                bad.append(BadImage(path, "is a symbolic link to a folder, which is not followed"))
        subfolders[:] = [name for name in subfolders if not _is_litter(name) and _is_unicode(name)]


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in _LITTER


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
