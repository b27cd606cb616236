"""One door for all images: folders, tables, datasets and the built-in shapes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pfdl.data.datasets import DatasetSource
from pfdl.data.layout import list_folder
from pfdl.data.manifest import Manifest
from pfdl.data.shapes import Shapes
from pfdl.data.sources import ContextSource, ImageFiles
from pfdl.data.tables import TABLES, is_table, list_table

SHAPES = "shapes"
"""The word that stands for the built-in data set."""


def open_images(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    image_root: str | Path | None = None,
    layout: str | None = None,
    on_bad_image: str = "error",
    like: Manifest | None = None,
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
            dataset, the image itself), ``label``, ``context``, ``group`` (what must stay on one side of a split, such
            as a patient) and, of a table, ``split`` (train, val, test or, as WILDS has it, 0, 1, 2). The usual names
            are looked for where none is given, except for groups.
        image_root: Folder that the paths of a table are relative to; by default that of the table, or the one below it
            in which the first image is.
        layout: ``"class/context"`` or ``"context/class"``, where folders can be read in both ways.
        on_bad_image: ``"error"`` to refuse data with unusable files, ``"skip"`` to leave them out.
        like: A manifest of the same data, or of data with the same classes: the columns it was made from, its classes
            and the settings of the built-in shapes are taken over.

    Returns:
        The source. Files are read when its samples are first asked for.

    Raises:
        FileNotFoundError: If there is no such folder or table.
        TypeError: If ``data`` is none of the above.
        ValueError: If an option does not fit the data. (Where a folder can be read in two ways, ``samples`` of the
            source raises it.)

    Example:
        >>> import torch
        >>> from pfdl.data import make_split
        >>> source = open_images([(torch.full((3, 8, 8), number / 40), number % 2) for number in range(40)])
        >>> print(make_split(source).describe())
        Images: 40, of 2 classes (0, 1), without contexts.
        Sets: train 22, validation 2, test 16.
    """
    is_place = isinstance(data, (str, Path))
    is_shapes = is_place and str(data) == SHAPES
    is_listed = is_place and is_table(Path(data)) and not Path(data).is_dir()
    is_folder = is_place and not is_shapes and not is_listed
    if (columns or image_root is not None) and (is_folder or is_shapes):
        raise ValueError(
            f"columns or an image root are named, but {data} is no table; give one ending in {', '.join(TABLES)}."
        )
    if layout and not is_folder:
        raise ValueError(
            "a layout is named, but these images are in no folders; leave it out. Of a table, columns say what is the "
            "class (on the command line: --columns label=NAME)."
        )
    described = {} if like is None else like.parameters.get("source", {})
    if is_shapes:
        return _open_shapes(described)
    if not is_place:
        if all(hasattr(data, name) for name in ("samples", "description", "load")):
            source: ContextSource = data
            return source
        return DatasetSource(data, columns=columns)
    path = root = Path(data)
    list_files = partial(list_folder, layout=layout, known_classes=() if like is None else like.classes)
    if is_listed:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; name a table of images (CSV or Parquet).")
        root = Path(image_root or path.parent)
        hints = described.get("columns") if isinstance(described.get("columns"), dict) else None
        list_files = partial(list_table, table=path, columns=columns, hints=hints, searches=image_root is None)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; name the one that the images are in.")
    return ImageFiles(root, list_files, on_bad_image=on_bad_image)


def _open_shapes(described: Mapping[str, Any]) -> ContextSource:
    settings = {name: described[name] for name in ("per_cell", "strength", "seed") if name in described}
    try:
        return Shapes(**settings)
    except TypeError as error:
        raise ValueError(f"the manifest does not describe images of the built-in shapes: {error}") from None
