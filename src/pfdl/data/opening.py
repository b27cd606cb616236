"""One door for all images: folders, tables, datasets and the built-in shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from pfdl._internal.text import printable
from pfdl.data.datasets import DatasetSource
from pfdl.data.layout import list_folder
from pfdl.data.manifest import Manifest
from pfdl.data.shapes import Shapes
from pfdl.data.sources import ContextSource, ImageFiles, Sample
from pfdl.data.tables import TABLES, list_table

SHAPES = "shapes"
"""The word that stands for the built-in data set."""

_MOST_NAMED = 8
"""So many classes or contexts are named; of more, the first ones."""


def open_images(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    image_root: str | Path | None = None,
    layout: str | None = None,
    on_bad_image: str = "error",
    on_progress: Callable[[int, int], None] | None = None,
    like: Manifest | None = None,
    test: Any = None,
) -> ContextSource:
    """Open images, whatever form they have.

    Args:
        data: One of

            - a folder ``class/image``, ``class/context/image`` or ``context/class/image``;
            - a folder with ``train``, ``val`` and ``test`` in it (or ``training``, ``validation``, ``valid``,
              ``testing``), each of them in one of these layouts;
            - a table (``.csv``, ``.tsv``, ``.parquet``, or the ``.txt`` of CelebA) with a line per image;
            - the word ``"shapes"`` for the built-in data set;
            - in Python also a map-style dataset of PyTorch or Hugging Face that gives image and label, or a mapping
              from names of sets to such datasets;
            - a source, which is returned as it is.
        columns: Which column of a table, or entry of a dataset's items, holds what: ``path`` (of the image; in a
            dataset, the image itself), ``label``, ``context``, ``split`` (train, val, test or, as WILDS has it, 0, 1,
            2) and ``group`` (what must stay on one side of a split, such as a patient). The usual names are looked for
            where none is given, except for groups.
        image_root: Folder that the paths of a table are relative to; by default that of the table, or the one below it
            in which the first image is.
        layout: ``"class/context"`` or ``"context/class"``, where folders can be read in both ways.
        on_bad_image: ``"error"`` to refuse data with unusable files, ``"skip"`` to leave them out.
        on_progress: Called with the number of images checked so far and the number of all images.
        like: A manifest of the same data, or of data with the same classes: the columns it was made from, its classes
            and the settings of the built-in shapes are taken over.
        test: Further images that are the test set, in any of these forms; then all of ``data`` is trained on.

    Returns:
        The source. Files are read when its samples are first asked for.

    Raises:
        FileNotFoundError: If there is no such folder or table.
        TypeError: If ``data`` is none of the above.
        ValueError: If an option does not fit the data. (Where a folder can be read in two ways, ``samples`` of the
            source raises :class:`pfdl.data.layout.AmbiguousLayoutError`.)

    Example:
        >>> import torch
        >>> source = open_images([(torch.full((3, 8, 8), number / 40), number % 2) for number in range(40)])
        >>> print(describe_images(source))
        Images: 40, of 2 classes (0, 1), without contexts.
        Sets: none of their own; a split will be made.
    """
    described = {} if like is None else like.parameters.get("source", {})

    def open_one(data: Any, described: Mapping[str, Any]) -> ContextSource:
        """Open one place; what a manifest says of it helps."""
        kind = _kind_of(data)
        if kind == "source":
            source: ContextSource = data
            return source
        if kind == "dataset":
            return DatasetSource(data, columns=columns, on_progress=on_progress)
        if kind == SHAPES:
            return _open_shapes(described)
        path = Path(data)
        root = path
        if kind == "table":
            if not path.is_file():
                raise FileNotFoundError(f"there is no file {path}; name a table of images (CSV or Parquet).")
            root = Path(image_root or path.parent)
            hints = described.get("columns") if isinstance(described.get("columns"), dict) else None
            list_files = partial(list_table, table=path, columns=columns, hints=hints, searches=image_root is None)
        else:
            known_classes = () if like is None else like.classes
            list_files = partial(list_folder, layout=layout, known_classes=known_classes)
        if not root.is_dir():
            raise FileNotFoundError(f"there is no folder {root}; name the one that the images are in.")
        return ImageFiles(root, list_files, on_bad_image=on_bad_image, on_progress=on_progress)

    kinds = {_kind_of(place) for place in ((data,) if test is None else (data, test))}
    if (columns or image_root is not None) and kinds <= {"folder", SHAPES}:
        raise ValueError(
            f"columns or an image root are named, but {data} is no table; give one ending in {', '.join(TABLES)}."
        )
    if layout and "folder" not in kinds:
        raise ValueError(
            "a layout is named, but these images are in no folders; leave it out. Of a table, columns say what is the "
            "class (on the command line: --columns label=NAME)."
        )
    if test is None:
        return open_one(data, described)
    return JoinedSource(open_one(data, described.get("train", {})), open_one(test, described.get("test", {})))


def _kind_of(data: Any) -> str:
    if not isinstance(data, (str, Path)):
        return "source" if all(hasattr(data, name) for name in ("samples", "description", "load")) else "dataset"
    if str(data) == SHAPES:
        return SHAPES
    return "table" if Path(data).suffix.lower() in TABLES and not Path(data).is_dir() else "folder"


class JoinedSource:
    """Two sources, of which one is trained on and the other is the test set.

    Paths begin with ``train/`` or ``test/``. A test set that the first source has of its own is left out; of the second
    source its own test set is taken where it has one, else all images.

    Args:
        train: Images to train on.
        test: Images to test on.
    """

    def __init__(self, train: ContextSource, test: ContextSource) -> None:
        self._parts = {"train": train, "test": test}

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Return every image, in the order of the paths.

        Raises:
            ValueError: If the test images have classes that the training images do not have.
        """
        train = [s for s in self._parts["train"].samples if s.split != "test"]
        test = list(self._parts["test"].samples)
        if any(sample.split == "test" for sample in test):
            test = [sample for sample in test if sample.split == "test"]
        unknown = sorted({sample.class_name for sample in test} - {sample.class_name for sample in train})
        if unknown:
            raise ValueError(
                f"the test images are also of {', '.join(map(repr, unknown))}, which the training images do not show; "
                "both must have the same classes."
            )
        return tuple(
            sorted(
                [s._replace(path=f"train/{s.path}", split=s.split or "train") for s in train]
                + [s._replace(path=f"test/{s.path}", split="test") for s in test]
            )
        )

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest."""
        parts = {name: dict(part.description) for name, part in self._parts.items()}
        notes = [note for part in parts.values() for note in part.get("notes", ())]
        left = sum(sample.split == "test" for sample in self._parts["train"].samples)
        if left:
            notes.append(f"Left out: the {left} images of the training data's own test set, because another is given.")
        return {"kind": "joined", **parts, "notes": notes}

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError if its content has not this hash."""
        name, _, rest = path.partition("/")
        if name not in self._parts:
            raise ValueError(f"{path!r} is neither among the training images nor among the test images.")
        return self._parts[name].load(rest, size, sha256)


def _open_shapes(described: Mapping[str, Any]) -> ContextSource:
    settings = {name: described[name] for name in ("per_cell", "strength", "seed") if name in described}
    try:
        return Shapes(**settings)
    except TypeError as error:
        raise ValueError(f"the manifest does not describe images of the built-in shapes: {error}") from None


def describe_images(source: ContextSource, manifest: Manifest | None = None) -> str:
    """Say in two lines what was understood: classes and contexts, and how many images each set has.

    Args:
        source: The images; every one is read if that was not done before.
        manifest: Their split, if there is one already.

    Returns:
        Two lines.

    Raises:
        ValueError: If the images cannot be used.
    """
    samples = source.samples if manifest is None else manifest.rows
    classes = sorted({sample.class_name for sample in samples})
    contexts = sorted({sample.context for sample in samples} - {""})
    where = f"in {_counted(contexts, 'context')}" if contexts else "without contexts"
    described = source.description if manifest is None else manifest.parameters.get("source", {})
    parts = (described, described.get("train", {}), described.get("test", {}))
    layouts = sorted({part["layout"] for part in parts if part.get("layout")})
    layout = f"; folders read as {' and '.join(layouts)}" if layouts else ""
    first = f"Images: {len(samples)}, of {_counted(classes, 'class')}, {where}{layout}."
    if manifest is not None:
        sizes = {name: len(manifest.rows_of(name)) for name in manifest.set_names}
        own = manifest.parameters.get("protocol") == "own"
        return f"{first}\nSets{', as the data has them' if own else ''}: {_sizes(sizes)}."
    splits = Counter(sample.split for sample in source.samples if sample.split)
    if not splits:
        return f"{first}\nSets: none of their own; a split will be made."
    return f"{first}\nSets, as the data has them: {_sizes({name: splits[name] for name in _ORDER if splits[name]})}."


_ORDER = ("train", "validation", "test")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sizes.items())


def _counted(names: Sequence[str], what: str) -> str:
    shown = ", ".join(map(printable, names[:_MOST_NAMED])) + (", …" if len(names) > _MOST_NAMED else "")
    plural = {"class": "classes"}.get(what, f"{what}s")
    return f"{len(names)} {plural if len(names) != 1 else what} ({shown})"
