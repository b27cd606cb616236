"""Which files of a folder are images of which class, context and set, by the folder names alone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pfdl._internal.text import printable
from pfdl._internal.validation import check_choice
from pfdl.data.images import BadImage, list_paths_below
from pfdl.data.sources import Listing, Sample

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
"""Names of folders, in any case, and of entries of tables that say to which set an image belongs.
"""

PUBLISHED_CONTEXTS = {
    "PACS": "artpainting cartoon photo sketch",
    "Office-Home": "art clipart product realworld",
    "Office-31": "amazon dslr webcam",
    "VLCS": "caltech101 labelme sun09 voc2007",
    "DomainNet": "clipart infograph painting quickdraw real sketch",
    "NICO++": "autumn dim grass outdoor rock water",
}
"""Names by which the contexts of published data sets are recognised: in small letters, nothing
between the words.
"""

_CONTEXT_NAME = re.compile(r"(on|in|at)[ _].+|location[ _]?\d+", re.IGNORECASE)
"""Names that can only be contexts: those of NICO ("on grass") and of TerraIncognita
("location_38").
"""

_SHARE_OF_COMBINATIONS = 0.9
"""Where so many combinations of an outer and an inner folder exist, either of them may be the
class.
"""

_MOST_NAMED = 5
"""So many folders are named in a message; of more, the first ones."""

_TABLES = ("metadata.csv", "metadata.parquet", "list_attr_celeba.csv", "list_attr_celeba.txt")
"""Tables that lie beside the images of published data sets."""


def list_folder(
    root: Path, layout: str | None = None, known_classes: Collection[str] = ()
) -> Listing:
    """List the files of a folder by set, class and context.

    Images lie as deep as most files do; a file at another depth is reported. Where the folders at
    the top are called train, val and test, they are the sets of the data and never classes. Files
    right in ``root`` (a README, a table), hidden files and what file managers leave behind are
    ignored. Without a layout the known classes decide, where they are on one level only, or else
    the names and the nesting of the folders.

    Raises:
        ValueError: If no layout is recognised, there is one class only, or classes and contexts
            could be exchanged and nothing says which are which.
    """
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    tables = sorted(path.name for path in root.iterdir() if path.name in _TABLES)
    try:
        samples, bad, order = _read_folders(root, layout, known_classes)
    except ValueError as error:
        if tables:
            raise ValueError(
                f"{error} There is a table in the folder; try {root / tables[0]}."
            ) from None
        raise
    notes = [
        f"{name} in the folder was not read: classes are the folders. Give the table itself to"
        " use it."
        for name in tables
    ]
    return Listing(
        sorted(samples), bad, {"kind": "folder", "layout": f"{order}/image", "notes": notes}
    )


def _read_folders(
    root: Path, layout: str | None, known_classes: Collection[str]
) -> tuple[list[Sample], list[BadImage], str]:
    """Return the images, what cannot be used, and how classes and contexts are nested."""
    bad: list[BadImage] = []
    places = _find_places(root, bad)
    depths = _find_depths(root, places)
    inside = [place for place in places if len(place.names) == depths[place.split]]
    pairs = {(place.names[0], place.names[1]) for place in inside if len(place.names) == 3}
    order = _choose_layout(root, pairs, layout, known_classes) if pairs else "class"
    bad += _misplaced(places, depths, order)
    samples = []
    for place in inside:
        label_and_context = _name_image(place.names, order)
        samples.append(Sample(place.path, *label_and_context, split=place.split))
    classes = sorted({sample.class_name for sample in samples})
    if len(classes) < 2:
        raise ValueError(
            f"{root} has the one class {classes[0]!r}; give images of at least two classes."
        )
    return samples, bad, order


class _Place(NamedTuple):
    """Where a file lies.

    Attributes:
        path: As seen from the folder of the data.
        split: The set of the data that it is in, ``""`` if the data has none.
        names: The folders below that of the set, and the file.
    """

    path: str
    split: str
    names: Sequence[str]


def _find_places(root: Path, bad: list[BadImage]) -> list[_Place]:
    """Return where the files of a folder lie, in the order of their paths; what cannot be listed
    goes to ``bad``.
    """
    paths = sorted(path for path in list_paths_below(root, bad) if "/" in path)
    sets = _find_sets(root, {path.partition("/")[0] for path in paths})
    places = []
    for path in paths:
        top, *below = path.split("/")
        names = below if sets else [top, *below]
        places.append(_Place(path, sets.get(top, ""), names))
    return places


def _find_sets(root: Path, folders: Iterable[str]) -> dict[str, str]:
    """Map folders at the top to the sets they are; empty if the folders at the top are classes."""
    sets = {
        name: SPLIT_NAMES[name.lower()] for name in sorted(folders) if name.lower() in SPLIT_NAMES
    }
    others = [name for name in sorted(folders) if name not in sets]
    if not sets or (others and len(set(sets.values())) < 2):
        return {}  # beside others, a class may well be called train, as among vehicles
    if others:
        raise ValueError(
            f"{root} has {_listed(sets)}, which look like the sets of the data, beside"
            f" {_listed(others)}, which do not. Keep only the sets in it, or say which image is in"
            " which set in a table (CSV with columns path, label and split)."
        )
    if len(set(sets.values())) < len(sets):
        raise ValueError(
            f"{root} has {_listed(sets)}, of which two mean the same set; keep one of them."
        )
    return sets


def _misplaced(
    places: Sequence[_Place], depths: Mapping[str, int], order: str
) -> Iterator[BadImage]:
    """Yield the files that lie deeper, or less deep, than most of their set."""
    for place in places:
        depth = depths[place.split]
        if len(place.names) != depth:
            expected = f"{order if depth == 3 else 'class'}/image"
            why = f"does not lie where this folder has its images, in {expected!r}"
            yield BadImage(place.path, why)


def _find_depths(root: Path, places: Sequence[_Place]) -> dict[str, int]:
    """Return how many names most files of each set have."""
    files: dict[str, list[Sequence[str]]] = {}
    for place in places:
        files.setdefault(place.split, []).append(place.names)
    return {split: _find_depth(root, split, names) for split, names in (files or {"": []}).items()}


def _find_depth(root: Path, split: str, files: Sequence[Sequence[str]]) -> int:
    """Return how many names most files of a set have: 2 for class/image, 3 where there are
    contexts.
    """
    depths = Counter(map(len, files))
    depth = max(depths, key=lambda parts: (depths[parts], parts), default=0)
    if depth == 4 and not split:
        first = next(names[0] for names in files if len(names) == 4)
        raise ValueError(
            f"{root} has images as 'superclass/class/context/image'; give one of its folders, such"
            f" as {root / first}."
        )
    if depth not in (2, 3):
        raise ValueError(
            f"{root} holds no images in a known layout; arrange them as 'class/image' or"
            " 'class/context/image', in folders train, val and test if the data has such sets; or"
            " list them in a table and give that: a CSV file with the columns path and label and,"
            " where there are such, context and split."
        )
    return depth


def _choose_layout(
    place: Path, pairs: set[tuple[str, str]], layout: str | None, known_classes: Collection[str]
) -> str:
    """Say whether the outer or the inner of two folders is the class."""
    if layout is not None:
        return layout
    outer = {first for first, _ in pairs}
    inner = {second for _, second in pairs}
    if (outer <= set(known_classes)) != (inner <= set(known_classes)):
        return CLASS_FIRST if outer <= set(known_classes) else CONTEXT_FIRST
    if _name_contexts(outer) != _name_contexts(inner):
        return CONTEXT_FIRST if _name_contexts(outer) else CLASS_FIRST
    is_grid = len(pairs) >= _SHARE_OF_COMBINATIONS * len(outer) * len(inner)
    if is_grid and len(outer) > 1 and len(inner) > 1:
        first = _listed(sorted(outer))
        second = _listed(sorted(inner))
        raise ValueError(
            f"{printable(place)} can be read in two ways, as its folders all have the same folders"
            f" in them:\n  {CLASS_FIRST}: the classes are {first}, in the contexts {second}\n "
            f" {CONTEXT_FIRST}: the classes are {second}, in the contexts {first}\nSay which with"
            " --layout class/context or --layout context/class (in Python: layout=...)."
        )
    return CLASS_FIRST


def _name_contexts(names: set[str]) -> bool:
    """Return whether folders have names of contexts, as far as names can tell."""
    if all(_CONTEXT_NAME.fullmatch(name) for name in names):
        return True
    plain = {re.sub("[^a-z0-9]", "", name.lower()) for name in names}
    return len(plain) > 1 and any(
        plain <= set(known.split()) for known in PUBLISHED_CONTEXTS.values()
    )


def _name_image(names: Sequence[str], order: str) -> tuple[str, str]:
    """Return the class and the context, or ``""``, that the folders of an image say, in Unicode's
    composed form.
    """
    folders = [unicodedata.normalize("NFC", name) for name in names[:-1]]
    if len(folders) == 1:
        return folders[0], ""
    outer, inner = folders
    if inner and order == CONTEXT_FIRST:
        return inner, outer
    if inner.startswith(f"{outer}(") and inner.endswith(")"):  # cat/cat(sofa), as MetaShift has it
        return outer, inner[len(outer) + 1 : -1]
    return outer, inner


def _listed(names: Iterable[str]) -> str:
    shown = list(map(repr, names))
    return ", ".join(shown if len(shown) <= _MOST_NAMED else [*shown[:_MOST_NAMED], "…"])
