"""Which files of a folder are images of which class, context and set, by the folder names alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pfdl.data.images import BadImageError

LAYOUTS = {2: "class/image", 3: "class/context/image", 4: "superclass/class/context/image"}
"""The known layouts, by the number of parts of a path. Each may lie in a folder of its own for train, val and test."""

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
"""Names of folders, in any case, and of entries of tables that say to which set an image belongs."""

_LITTER = {"thumbs.db", "desktop.ini", "__macosx"}


class FoundFile(NamedTuple):
    """A file where an image should be; ``split`` is the data's own set for it, or ``""``."""

    path: str
    class_name: str
    context: str
    split: str = ""
    group: str = ""


class BadImage(NamedTuple):
    """A file that cannot be used, and the rest of the sentence that starts with its name."""

    path: str
    reason: str


def find_files(root: Path, superclass: str | None = None) -> tuple[list[FoundFile], list[BadImage]]:
    """List the files of a folder by set, class and context.

    The layout is that of most files; a file at another depth is reported. Where the folders at the top are called
    train, val and test, they are the sets of the data and never classes. Files right in ``root`` (a README, a table),
    hidden files and what file managers leave behind are ignored.

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
    found: list[FoundFile] = []
    if sets := _find_sets(top, paths, offset):
        for folder, split in sets.items():
            inside = [path for path in paths if path.split("/")[offset] == folder]
            found += _arrange(top / folder, inside, offset + 1, split, bad)
        found.sort()
        _check_classes_of_sets(top, found)
    else:
        found = _arrange(top, paths, offset, "", bad, with_superclass=superclass is None)
    classes = sorted({file.class_name for file in found})
    if len(classes) < 2:
        raise ValueError(f"{top} has the one class {classes[0]!r}; give images of at least two classes.")
    return found, bad


def _find_sets(top: Path, paths: Sequence[str], offset: int) -> dict[str, str]:
    """Map folders at the top to the sets they are; empty if the folders at the top are classes."""
    folders = sorted({path.split("/")[offset] for path in paths if path.count("/") > offset})
    sets = {name: SPLIT_NAMES[name.lower()] for name in folders if name.lower() in SPLIT_NAMES}
    others = [name for name in folders if name not in sets]
    if not sets or (others and len(set(sets.values())) < 2):
        return {}  # beside others, a class may well be called train, as among vehicles
    if others:
        raise ValueError(
            f"{top} has {_listed(sets)}, which look like the sets of the data, beside {_listed(others)}, which do not. "
            "Keep only the sets in it, or say which image is in which set in a table (CSV with columns path, label and "
            "split)."
        )
    if len(set(sets.values())) < len(sets):
        raise ValueError(f"{top} has {_listed(sets)}, of which two mean the same set; keep one of them.")
    return sets


def _arrange(
    place: Path, paths: Sequence[str], offset: int, split: str, bad: list[BadImage], *, with_superclass: bool = False
) -> list[FoundFile]:
    """Read classes and contexts off the paths of one set, whose first ``offset`` parts are neither."""
    depths = Counter(path.count("/") + 1 - offset for path in paths)
    depth = max(depths, key=lambda parts: (depths[parts], parts), default=0)
    known = {parts: layout for parts, layout in LAYOUTS.items() if parts < 4 or with_superclass}
    if depth not in known:
        raise ValueError(
            f"{place} holds no images in a known layout; arrange them as {' or '.join(map(repr, known.values()))}, "
            "in folders train, val and test if the data has such sets."
        )
    if depth == 4:
        superclasses = sorted({path.split("/")[0] for path in paths if path.count("/") == 3})
        if len(superclasses) > 1:
            raise ValueError(
                f"{place} has images as {LAYOUTS[4]!r}; choose one superclass of {_listed(superclasses)} "
                "(on the command line: --set superclass=NAME)."
            )
        offset, depth = 1, 3
    found = []
    for path in paths:
        parts = path.split("/")[offset:]
        if len(parts) == depth:
            found.append(FoundFile(path, parts[0], parts[1] if depth == 3 else "", split))
        else:
            bad.append(BadImage(path, f"does not lie where this folder has its images, in {LAYOUTS[depth]!r}"))
    return found


def _check_classes_of_sets(top: Path, found: Sequence[FoundFile]) -> None:
    trained = {file.class_name for file in found if file.split == "train"}
    for split in ("validation", "test"):
        unknown = sorted({file.class_name for file in found if file.split == split} - trained)
        if trained and unknown:
            raise ValueError(
                f"the {split} set of {top} has images of {_listed(unknown)}, which the training set does not have; "
                "both must have the same class folders."
            )


def _listed(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(map(repr, names))


def path_inside(root: Path, path: str) -> Path:
    """Return the file that a path of a manifest names.

    Args:
        root: The data folder, resolved.
        path: The path, with ``/`` between its parts.

    Returns:
        The file, not necessarily existing.

    Raises:
        BadImageError: If it is absolute, has ``..`` in it, or leads out of the folder through a symbolic link.
    """
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


def _single_part(name: str) -> str:
    if len(PurePosixPath(name).parts) != 1 or name in (".", ".."):
        raise ValueError(f"superclass is {name!r}; give the name of one folder, without '/'.")
    return name


def _walk(root: Path, top: Path, bad: list[BadImage]) -> Iterator[str]:
    """Yield the paths of the files below ``top``, relative to ``root``; what cannot be one goes to ``bad``."""

    def unreadable(error: OSError) -> None:
        folder = Path(error.filename).relative_to(root).as_posix()
        bad.append(BadImage(folder, f"cannot be listed ({error.strerror})"))

    for folder, subfolders, files in os.walk(top, onerror=unreadable):
        here = Path(folder).relative_to(root).as_posix()
        prefix = "" if here == "." else f"{here}/"
        for name in subfolders:
            if is_litter(name):
                continue
            if not _is_unicode(name):
                bad.append(_misnamed(prefix + name))
            elif Path(folder, name).is_symlink():
                bad.append(BadImage(prefix + name, "is a symbolic link to a folder, which is not followed"))
        subfolders[:] = [name for name in subfolders if not is_litter(name) and _is_unicode(name)]
        for name in files if Path(folder) != top else ():
            if is_litter(name):
                continue
            if _is_unicode(name):
                yield prefix + name
            else:
                bad.append(_misnamed(prefix + name))


def _misnamed(path: str) -> BadImage:
    return BadImage(ascii(path), "has a name that is not valid Unicode; rename it")


def is_litter(name: str) -> bool:
    """Return whether a file or folder is hidden, or left by a file manager."""
    return name.startswith(".") or name.lower() in _LITTER


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
