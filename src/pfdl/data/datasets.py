"""Any map-style dataset of PyTorch or Hugging Face as a source of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pfdl._internal.validation import check_choice
from pfdl.data.images import hash_pixels, to_tensor
from pfdl.data.layout import SPLIT_NAMES
from pfdl.data.sources import Sample

_IMAGE_KEYS = ("image", "img", "pixels", "picture")
_LABEL_KEYS = ("label", "labels", "y", "target", "class", "fine_label")


class DatasetSource:
    """Images of a dataset in memory, or of several that are its sets.

    An item is a pair (image, label), of which further parts are ignored, or a dictionary as Hugging Face's datasets
    give. An image is a PIL image, or an array or tensor: bytes, or floating-point numbers from 0 to 1; its channels may
    come first or last. It must be the same each time it is asked for: apply random transforms later.

    Args:
        data: The dataset; or a mapping from ``"train"``, ``"validation"`` and ``"test"`` to datasets.
        columns: For items that are dictionaries: which entry is the image (``path``), the ``label``, the ``context``
            and the ``group`` (what must stay on one side of a split).

    Raises:
        TypeError: If the data has no length or cannot be indexed.
        ValueError: If the names of the sets or of the columns are not known, or there are no images.
    """

    def __init__(self, data: Any, *, columns: Mapping[str, str] | None = None) -> None:
        self._columns = dict(columns or {})
        for role in self._columns:
            check_choice("what an entry of the dataset is", role, ("path", "label", "context", "group"))
        self._parts: dict[str, Any] = {}
        for name, part in data.items() if isinstance(data, Mapping) else [("", data)]:
            split = SPLIT_NAMES.get(str(name).lower(), "")
            if name and (not split or split in self._parts):
                raise ValueError(f"a set is called {name!r}; call the sets train, validation and test.")
            if not hasattr(part, "__len__") or not hasattr(part, "__getitem__"):
                raise TypeError(
                    f"a {type(part).__name__} is no map-style dataset; it must have a length and give items by number."
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
                samples.append(Sample(path, _class_name(names, label), context, digest, digest, split, group))
        return tuple(sorted(samples))

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError if it is not the one of the manifest."""
        name, _, number = path.partition("/")
        split = "" if name == "all" else name
        part = self._parts.get(split)
        if part is None or not number.isdigit() or int(number) >= len(part):
            raise ValueError(f"the dataset has no image {path!r}; it has {', '.join(self._parts) or 'one set'}.")
        image, *_ = self._item(part, split, int(number))
        if hash_pixels(image) != sha256:
            raise ValueError(
                f"image {path!r} of the dataset is another one than when the split was made; give the same dataset, "
                "without transforms that draw at random."
            )
        return to_tensor(image, size)

    def _item(self, part: Any, split: str, number: int) -> tuple[Image.Image, Any, str, str]:
        where = f"item {number}{f' of {split}' if split else ''}"
        item = part[number]
        if isinstance(item, Mapping):
            image = _entry(item, self._columns.get("path"), _IMAGE_KEYS, "image", where)
            label = _entry(item, self._columns.get("label"), _LABEL_KEYS, "label", where)
            context, group = (
                str(_entry(item, self._columns[role], (), role, where)) if role in self._columns else ""
                for role in ("context", "group")
            )
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) >= 2:
            image, label, context, group = item[0], item[1], "", ""
        else:
            raise ValueError(f"{where} is a {type(item).__name__}; give (image, label) or a dictionary with both.")
        try:
            return _to_rgb(image), label, context, group
        except ValueError as error:
            raise ValueError(f"the image of {where} {error}.") from error


def _entry(item: Mapping[str, Any], given: str | None, usual: Sequence[str], what: str, where: str) -> Any:
    for name in usual if given is None else (given,):
        if name in item:
            return item[name]
    raise ValueError(f"{where} has the entries {', '.join(map(repr, item))}; say which of them is the {what}.")


def _class_names(part: Any, label_column: str | None) -> Sequence[str] | None:
    """Return the names that a dataset of torchvision or Hugging Face has for its labels, if it has any."""
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
    return names[value] if names is not None and isinstance(value, int) and 0 <= value < len(names) else str(value)


def _to_rgb(image: Any) -> Image.Image:
    """Turn what datasets give for an image into 8-bit RGB."""
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if not isinstance(image, (Tensor, np.ndarray)):
        raise ValueError(f"is a {type(image).__name__}; give a PIL image, an array or a tensor")
    pixels = image.detach().cpu() if isinstance(image, Tensor) else torch.tensor(image)
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim != 3 or not {pixels.shape[0], pixels.shape[2]} & {1, 3}:
        raise ValueError(f"has the shape {tuple(pixels.shape)}; give (channels, height, width) with 1 or 3 channels")
    if pixels.shape[0] not in (1, 3):
        pixels = pixels.permute(2, 0, 1)
    if pixels.is_floating_point():
        if not bool(((pixels >= 0) & (pixels <= 1)).all()):
            raise ValueError("has numbers outside 0 to 1; give images as they are before they are normalised")
        pixels = (pixels * 255).round()
    elif pixels.dtype != torch.uint8 and not bool(((pixels >= 0) & (pixels <= 255)).all()):
        raise ValueError("has numbers outside 0 to 255; give bytes")
    rgb = pixels.to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(rgb)
