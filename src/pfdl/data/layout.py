"""Which files of a folder are images of which class, context and set, by the folder names alone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pfdl._internal.text import printable
from pfdl._internal.validation import check_choice
from pfdl.data.paths import BadImage, list_paths_below

CLASS_FIRST, CONTEXT_FIRST = LAYOUTS = ("class/context", "context/class")
"""How classes and contexts may be nested in each other."""

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

PUBLISHED_CONTEXTS = {
    "PACS": "artpainting cartoon photo sketch",
    "Office-Home": "art clipart product realworld",
    "Office-31": "amazon dslr webcam",
    "VLCS": "caltech101 labelme sun09 voc2007",
    "DomainNet": "clipart infograph painting quickdraw real sketch",
    "NICO++": "autumn dim grass outdoor rock water",
}
"""Names by which the contexts of published data sets are recognised: in small letters, nothing between the words."""

_CONTEXT_NAME = re.compile(r"(on|in|at)[ _].+|location[ _]?\d+", re.IGNORECASE)
"""Names that can only be contexts: those of NICO ("on grass") and of TerraIncognita ("location_38")."""

_SHARE_OF_COMBINATIONS = 0.9
"""Where so many combinations of an outer and an inner folder exist, either of them may be the class."""

_MOST_NAMED = 5
"""So many folders are named in a message; of more, the first ones."""


class FoundFile(NamedTuple):
    """A file where an image should be; ``split`` is the data's own set for it, or ``""``."""

    path: str
    class_name: str
    context: str
    split: str = ""
    group: str = ""


class AmbiguousLayoutError(ValueError):
    """A folder whose outer and inner folders could both be the classes; nothing was read.

    Attributes:
        readings: For each of the ``LAYOUTS``, what the folder would be by it, in words.
    """

    def __init__(self, place: Path, outer: Sequence[str], inner: Sequence[str]) -> None:
        first, second = _listed(outer), _listed(inner)
        self.readings = {
            CLASS_FIRST: f"the classes are {first}, in the contexts {second}",
            CONTEXT_FIRST: f"the classes are {second}, in the contexts {first}",
        }
        lines = [f"  {layout}: {reading}" for layout, reading in self.readings.items()]
        super().__init__(
            "\n".join(
                [
                    f"{printable(place)} can be read in two ways, as its folders all have the same folders in them:",
                    *lines,
                    "Say which with --layout class/context or --layout context/class (in Python: layout=...).",
                ]
            )
        )


@dataclass
class _Part:
    """One set of the data, or all of it: its files, how many folders precede the class, and how deep images lie."""

    place: Path
    paths: list[str]
    offset: int
    split: str = ""
    depth: int = 0

    def levels(self, path: str) -> list[str]:
        """Return the folders of a file that say what it shows, and its name."""
        return path.split("/")[self.offset :]


def find_files(
    root: Path, superclass: str | None = None, layout: str | None = None, known_classes: Collection[str] = ()
) -> tuple[list[FoundFile], list[BadImage], str]:
    """List the files of a folder by set, class and context.

    Images lie as deep as most files do; a file at another depth is reported. Where the folders at the top are called
    train, val and test, they are the sets of the data and never classes. Files right in ``root`` (a README, a table),
    hidden files and what file managers leave behind are ignored. Without a layout the known classes decide, where they
    are on one level only, or else the names and the nesting of the folders.

    Returns:
        The files in the order of their paths, what cannot be used, and the layout, such as ``class/context/image``.

    Raises:
        AmbiguousLayoutError: If classes and contexts could be exchanged, and nothing says which are which.
        ValueError: If no layout is recognised, or it has superclasses and none is chosen, or there is one class only.
    """
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    top = root if superclass is None else root / _single_part(superclass)
    if not top.is_dir():
        folders = ", ".join(repr(entry.name) for entry in sorted(root.iterdir()) if entry.is_dir())
        raise ValueError(f"superclass is {superclass!r} but {root} holds {folders or 'no folders'}; name one of them.")
    bad: list[BadImage] = []
    offset = 0 if superclass is None else 1
    paths = sorted(path for path in list_paths_below(root, top, bad) if path.count("/") > offset)
    parts = [
        _Part(top / folder, [path for path in paths if path.split("/")[offset] == folder], offset + 1, split)
        for folder, split in _find_sets(top, paths, offset).items()
    ] or [_Part(top, paths, offset)]
    for part in parts:
        _measure(part, may_have_superclass=superclass is None and not part.split)
    pairs = {(levels[0], levels[1]) for part in parts if part.depth == 3 for levels in _images(part)}
    order = _choose_layout(top, pairs, layout, known_classes) if pairs else "class"
    found = [file for part in parts for file in _arrange(part, order, bad)]
    found.sort()
    _check_classes(top, found)
    return found, bad, f"{order}/image"


def _find_sets(top: Path, paths: Sequence[str], offset: int) -> dict[str, str]:
    """Map folders at the top to the sets they are; empty if the folders at the top are classes."""
    folders = sorted({path.split("/")[offset] for path in paths})
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


def _measure(part: _Part, may_have_superclass: bool) -> None:
    """Find how deep the images of a part lie; a single superclass is passed over."""
    depths = Counter(len(part.levels(path)) for path in part.paths)
    part.depth = max(depths, key=lambda parts: (depths[parts], parts), default=0)
    if part.depth == 4 and may_have_superclass:
        superclasses = sorted({path.split("/")[0] for path in part.paths if path.count("/") == 3})
        if len(superclasses) > 1:
            raise ValueError(
                f"{part.place} has images as 'superclass/class/context/image'; choose one superclass of "
                f"{', '.join(map(repr, superclasses))} (on the command line: --set superclass=NAME)."
            )
        part.offset, part.depth = 1, 3
    if part.depth not in (2, 3):
        raise ValueError(
            f"{part.place} holds no images in a known layout; arrange them as 'class/image' or 'class/context/image', "
            "in folders train, val and test if the data has such sets; or list them in a table and give that: a CSV "
            "file with the columns path and label and, where there are such, context and split."
        )


def _images(part: _Part) -> Iterable[list[str]]:
    return (levels for levels in map(part.levels, part.paths) if len(levels) == part.depth)


def _choose_layout(place: Path, pairs: set[tuple[str, str]], layout: str | None, known_classes: Collection[str]) -> str:
    """Say whether the outer or the inner of two folders is the class."""
    if layout is not None:
        return layout
    outer, inner = ({pair[level] for pair in pairs} for level in (0, 1))
    if (outer <= set(known_classes)) != (inner <= set(known_classes)):
        return CLASS_FIRST if outer <= set(known_classes) else CONTEXT_FIRST
    if _name_contexts(outer) != _name_contexts(inner):
        return CONTEXT_FIRST if _name_contexts(outer) else CLASS_FIRST
    is_grid = len(pairs) >= _SHARE_OF_COMBINATIONS * len(outer) * len(inner)
    if is_grid and len(outer) > 1 and len(inner) > 1:
        raise AmbiguousLayoutError(place, sorted(outer), sorted(inner))
    return CLASS_FIRST


def _name_contexts(names: set[str]) -> bool:
    """Return whether folders have names of contexts, as far as names can tell."""
    if all(_CONTEXT_NAME.fullmatch(name) for name in names):
        return True
    plain = {re.sub("[^a-z0-9]", "", name.lower()) for name in names}
    return len(plain) > 1 and any(plain <= set(known.split()) for known in PUBLISHED_CONTEXTS.values())


def _arrange(part: _Part, order: str, bad: list[BadImage]) -> list[FoundFile]:
    """Read class and context off the paths of a part; what lies at another depth goes to ``bad``."""
    found = []
    for path in part.paths:
        levels = [unicodedata.normalize("NFC", name) for name in part.levels(path)]
        if len(levels) != part.depth:
            expected = f"{order if part.depth == 3 else 'class'}/image"
            bad.append(BadImage(path, f"does not lie where this folder has its images, in {expected!r}"))
            continue
        class_name, context = (*levels[:-1], "")[:2]
        if order == CONTEXT_FIRST and part.depth == 3:
            class_name, context = context, class_name
        elif context.startswith(f"{class_name}(") and context.endswith(")"):  # cat/cat(sofa), as MetaShift has it
            context = context[len(class_name) + 1 : -1]
        found.append(FoundFile(path, class_name, context, part.split))
    return found


def _check_classes(top: Path, found: Sequence[FoundFile]) -> None:
    classes = sorted({file.class_name for file in found})
    if len(classes) < 2:
        raise ValueError(f"{top} has the one class {classes[0]!r}; give images of at least two classes.")
    trained = {file.class_name for file in found if file.split == "train"}
    for split in ("validation", "test"):
        unknown = sorted({file.class_name for file in found if file.split == split} - trained)
        if trained and unknown:
            raise ValueError(
                f"the {split} set of {top} has images of {_listed(unknown)}, which the training set does not have; "
                "both must have the same class folders."
            )


def _listed(names: Iterable[str]) -> str:
    shown = list(map(repr, names))
    return ", ".join(shown if len(shown) <= _MOST_NAMED else [*shown[:_MOST_NAMED], "…"])


def _single_part(name: str) -> str:
    if len(PurePosixPath(name).parts) != 1 or name in (".", ".."):
        raise ValueError(f"superclass is {name!r}; give the name of one folder, without '/'.")
    return name
