"""One door for all images: folders, tables, datasets and the built-in shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pfdl._internal.validation import check_choice
from pfdl.data.images import as_rgb, hash_pixels, to_tensor
from pfdl.data.layout import SPLIT_NAMES, list_folder
from pfdl.data.manifest import Manifest
from pfdl.data.shapes import Shapes
from pfdl.data.sources import ContextSource, ImageFiles, Listing, Sample
from pfdl.data.tables import TABLES, is_table, list_table

SHAPES = "shapes"
"""The word that stands for the built-in data set."""

FOLDER, TABLE, DATASET = "folder", "table", "dataset"
"""What else can be opened."""

_IMAGE_KEYS = ("image", "img", "pixels", "picture")
_LABEL_KEYS = ("label", "labels", "y", "target", "class", "fine_label")


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
            - a folder with ``train``, ``val`` and ``test`` in it (or ``training``, ``validation``,
              ``valid``, ``testing``), each of them in one of these layouts;
            - a table (``.csv``, ``.tsv``, ``.parquet``, or the ``.txt`` of CelebA) with a line per
              image;
            - the word ``"shapes"`` for the built-in data set;
            - in Python also a map-style dataset of PyTorch or Hugging Face that gives image and
              label, or a mapping from names of sets to such datasets;
            - a source, which is returned as it is.
        columns: Which column of a table, or entry of a dataset's items, holds what: ``path`` (of
            the image; in a dataset, the image itself), ``label``, ``context``, ``group`` (what must
            stay on one side of a split, such as a patient) and, of a table, ``split`` (train, val,
            test or, as WILDS has it, 0, 1, 2). The usual names are looked for where none is given,
            except for groups.
        image_root: Folder that the paths of a table are relative to; by default that of the table,
            or the one below it in which the first image is.
        layout: ``"class/context"`` or ``"context/class"``, where folders can be read in both ways.
        on_bad_image: ``"error"`` to refuse data with unusable files, ``"skip"`` to leave them out.
        like: A manifest of the same data, or of data with the same classes: the columns it was made
            from, its classes and the settings of the built-in shapes are taken over.

    Returns:
        The source. Files are read when its samples are first asked for.

    Raises:
        FileNotFoundError: If there is no such folder or table.
        TypeError: If ``data`` is none of the above.
        ValueError: If an option does not fit the data. (Where a folder can be read in two ways,
            ``samples`` of the source raises it.)

    Example:
        >>> import torch
        >>> from pfdl.data import make_split
        >>> source = open_images(
        ...     [(torch.full((3, 8, 8), number / 40), number % 2) for number in range(40)]
        ... )
        >>> print(make_split(source).describe())
        Images: 40, of 2 classes (0, 1), without contexts.
        Sets: train 22, validation 2, test 16.
    """
    kind = _kind_of(data)
    _check_options(data, kind, columns, image_root, layout)
    described = like.parameters.get("source", {}) if like else {}
    if kind == DATASET:
        return data if _is_source(data) else DatasetSource(data, columns=columns)
    if kind == SHAPES:
        return _open_shapes(described)
    if kind == TABLE:
        list_files = _lister_of_table(Path(data), columns, described, image_root is None)
        root = Path(image_root or Path(data).parent)
        return _open_files(root, list_files, on_bad_image)
    known = like.classes if like else ()
    list_files = partial(list_folder, layout=layout, known_classes=known)
    return _open_files(Path(data), list_files, on_bad_image)


def _kind_of(data: Any) -> str:
    if not isinstance(data, (str, Path)):
        return DATASET
    if str(data) == SHAPES:
        return SHAPES
    return TABLE if is_table(Path(data)) and not Path(data).is_dir() else FOLDER


def _check_options(
    data: Any,
    kind: str,
    columns: Mapping[str, str] | None,
    image_root: str | Path | None,
    layout: str | None,
) -> None:
    """Raise ValueError for options that do not fit the data."""
    if layout and kind != FOLDER:
        raise ValueError(
            "a layout is named, but these images are in no folders; leave it out. Of a table,"
            " columns say what is the class (on the command line: --columns label=NAME)."
        )
    if kind in (FOLDER, SHAPES) and (columns or image_root is not None):
        raise ValueError(
            f"columns or an image root are named, but {data} is no table; give one ending in"
            f" {', '.join(TABLES)}."
        )


def _open_files(root: Path, list_files: partial[Listing], on_bad_image: str) -> ImageFiles:
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; name the one that the images are in.")
    return ImageFiles(root, list_files, on_bad_image=on_bad_image)


def _is_source(data: Any) -> TypeGuard[ContextSource]:
    return all(hasattr(data, name) for name in ("samples", "description", "load"))


def _lister_of_table(
    table: Path,
    columns: Mapping[str, str] | None,
    described: Mapping[str, Any],
    searches: bool,
) -> partial[Listing]:
    if not table.is_file():
        raise FileNotFoundError(
            f"there is no file {table}; name a table of images (CSV or Parquet)."
        )
    hints = described.get("columns")
    usable = hints if isinstance(hints, dict) else {}
    return partial(list_table, table=table, columns=columns, hints=usable, searches=searches)


def _open_shapes(described: Mapping[str, Any]) -> ContextSource:
    names = ("per_cell", "strength", "seed")
    settings = {name: described[name] for name in names if name in described}
    try:
        return Shapes(**settings)
    except TypeError as error:
        raise ValueError(
            f"the manifest does not describe images of the built-in shapes: {error}"
        ) from None


class DatasetSource:
    """Images of a dataset in memory, or of several that are its sets.

    An item is a pair (image, label), of which further parts are ignored, or a dictionary as Hugging
    Face's datasets give. An image is a PIL image, or an array or tensor: bytes, floating-point
    numbers from 0 to 1, or truth values; its channels may come first or last. It must be the same
    each time it is asked for: apply random transforms later.

    Args:
        data: The dataset; or a mapping from ``"train"``, ``"validation"`` and ``"test"`` to
            datasets.
        columns: For items that are dictionaries: which entry is the image (``path``), the
            ``label``, the ``context`` and the ``group`` (what must stay on one side of a split).

    Raises:
        TypeError: If the data has no length or cannot be indexed.
        ValueError: If the names of the sets or of the columns are not known, or there are no
            images.
    """

    def __init__(self, data: Any, *, columns: Mapping[str, str] | None = None) -> None:
        self._columns = dict(columns or {})
        for role in self._columns:
            check_choice(
                "what an entry of the dataset is", role, ("path", "label", "context", "group")
            )
        self._parts: dict[str, Any] = {}
        for name, part in data.items() if isinstance(data, Mapping) else [("", data)]:
            split = SPLIT_NAMES.get(str(name).lower(), "")
            if name and (not split or split in self._parts):
                raise ValueError(
                    f"a set is called {name!r}; call the sets train, validation and test."
                )
            if not hasattr(part, "__len__") or not hasattr(part, "__getitem__"):
                raise TypeError(
                    f"a {type(part).__name__} is no map-style dataset; it must have a length and"
                    " give items by number."
                )
            self._parts[split] = part
        if not sum(map(len, self._parts.values())):
            raise ValueError("the dataset is empty; give one with images.")

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest."""
        return {"kind": "dataset", "type": type(next(iter(self._parts.values()))).__name__}

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Return every image, in the order of the sets and of their numbers.

        Raises:
            ValueError: If an item is not what is described above.
        """
        samples: list[Sample] = []
        for split, part in self._parts.items():
            names = _class_names(part, self._columns.get("label"))
            for number in range(len(part)):
                image, label, context, group = self._item(part, split, number)
                digest = hash_pixels(image)
                path = f"{split or 'all'}/{number:08d}"
                samples.append(
                    Sample(path, _class_name(names, label), context, digest, digest, split, group)
                )
        return tuple(sorted(samples))

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError if it is not the one of
        the manifest.
        """
        name, _, number = path.partition("/")
        split = "" if name == "all" else name
        part = self._parts.get(split)
        if part is None or not number.isdigit() or int(number) >= len(part):
            raise ValueError(
                f"the dataset has no image {path!r}; it has {', '.join(self._parts) or 'one set'}."
            )
        image, *_ = self._item(part, split, int(number))
        if hash_pixels(image) != sha256:
            raise ValueError(
                f"image {path!r} of the dataset is another one than when the split was made; give"
                " the same dataset, without transforms that draw at random."
            )
        return to_tensor(image, size)

    def _item(self, part: Any, split: str, number: int) -> tuple[Image.Image, Any, str, str]:
        where = f"item {number}{f' of {split}' if split else ''}"
        item = part[number]
        further = {"context": "", "group": ""}
        if isinstance(item, Mapping):
            image = _entry(item, self._columns.get("path"), _IMAGE_KEYS, "image", where)
            label = _entry(item, self._columns.get("label"), _LABEL_KEYS, "label", where)
            for role in further.keys() & self._columns.keys():
                further[role] = str(_entry(item, self._columns[role], (), role, where))
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) >= 2:
            image, label, *_ = item
        else:
            raise ValueError(
                f"{where} is a {type(item).__name__}; give (image, label) or a dictionary with"
                " both."
            )
        try:
            return _read_image(image), label, further["context"], further["group"]
        except ValueError as error:
            raise ValueError(f"the image of {where} {error}.") from error


def _entry(
    item: Mapping[str, Any], given: str | None, usual: Sequence[str], what: str, where: str
) -> Any:
    for name in usual if given is None else (given,):
        if name in item:
            return item[name]
    raise ValueError(
        f"{where} has the entries {', '.join(map(repr, item))}; say which of them is the {what}."
    )


def _class_names(part: Any, label_column: str | None) -> Sequence[str] | None:
    """Return the names that a dataset of torchvision or Hugging Face has for its labels, if it has
    any.
    """
    features = getattr(part, "features", None)
    if isinstance(features, Mapping):
        for name in (label_column,) if label_column else _LABEL_KEYS:
            if hasattr(features.get(name), "names"):
                names: Sequence[str] = features[name].names
                return names
    classes = getattr(part, "classes", None)
    return list(map(str, classes)) if isinstance(classes, (list, tuple)) else None


def _class_name(names: Sequence[str] | None, label: Any) -> str:
    value = label.item() if hasattr(label, "item") else label
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return str(value)


def _read_image(image: Any) -> Image.Image:
    """Turn what datasets give for an image into 8-bit RGB."""
    if isinstance(image, Image.Image):
        return as_rgb(image)
    if not isinstance(image, (Tensor, np.ndarray)):
        raise ValueError(f"is a {type(image).__name__}; give a PIL image, an array or a tensor")
    pixels = image.detach().cpu() if isinstance(image, Tensor) else torch.tensor(image)
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim != 3 or not {pixels.shape[0], pixels.shape[2]} & {1, 3}:
        raise ValueError(
            f"has the shape {tuple(pixels.shape)}; give (channels, height, width) with 1 or 3"
            " channels"
        )
    if pixels.shape[0] not in (1, 3):
        pixels = pixels.permute(2, 0, 1)
    rgb = _as_bytes(pixels).expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(rgb)


def _as_bytes(pixels: Tensor) -> Tensor:
    """Return pixels as bytes, of which 255 is white; ValueError where they are beyond that."""
    if pixels.is_floating_point() or pixels.dtype == torch.bool:
        if not bool(((pixels >= 0) & (pixels <= 1)).all()):
            raise ValueError(
                "has numbers outside 0 to 1; give images as they are before they are normalised"
            )
        return (pixels * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8 and not bool(((pixels >= 0) & (pixels <= 255)).all()):
        raise ValueError("has numbers outside 0 to 255; give bytes")
    return pixels.to(torch.uint8)
