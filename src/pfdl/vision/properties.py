"""Plain properties of image files that go with the class: what is read fastest of a shortcut."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import ExifTags, Image
from scipy.ndimage import laplace

from pfdl.contexts.confirmation import cramers_v
from pfdl.data.images import FORMATS, decoded, path_inside, read_bytes
from pfdl.data.manifest import ManifestRow
from pfdl.data.sources import ContextSource

MOST_IMAGES = 2000
"""Of more images so many are looked at, drawn by a fixed seed."""

SIDE = 64
"""Pixels of the side to which an image is scaled for what its pixels say."""

BINS = 8
"""Numbers are compared in so many bins of equal counts, words by their most frequent ones."""

SURE = 0.01
"""A property goes with the class if its chance, times the number of properties, is below this."""

LEAST_STRENGTH = 0.2
"""Weaker associations are not worth a look (Cramér's V, from 0 to 1)."""

UNITS = {
    "brightness": "0 to 255",
    "brightness of the border": "0 to 255",
    "evenness of the border": "deviation of its pixels",
    "hue": "degrees",
    "saturation": "0 to 1",
    "sharpness": "deviation of the Laplacian",
    "width": "pixels",
    "height": "pixels",
    "aspect": "width by height",
    "bytes per pixel": "",
    "compression": "mean of the JPEG tables",
    "date": "year",
    "camera": "",
    "format": "",
    "folder": "",
    "prefix of the file's name": "",
}
"""The properties, and what their values mean."""


@dataclass(frozen=True)
class PropertyTest:
    """One property, and whether it goes with the class.

    Attributes:
        name: Of the property.
        strength: Cramér's V with the class: 0 not at all, 1 fully.
        chance: Of so strong an association under independence, times the number of properties that
            were tested (Holm's way).
        by_class: The median, or the most frequent word, of each class.
        images: How many images have the property.
    """

    name: str
    strength: float
    chance: float
    by_class: dict[str, str]
    images: int

    @property
    def matters(self) -> bool:
        """Return whether it goes with the class, and clearly enough to look at."""
        return self.chance < SURE and self.strength >= LEAST_STRENGTH

    def sentence(self) -> str:
        """Say it in a few words."""
        values = ", ".join(f"{label} {value}" for label, value in self.by_class.items())
        unit = f" ({UNITS[self.name]})" if UNITS.get(self.name) else ""
        return f"{self.name}{unit}: {values}"


def find_properties(
    source: ContextSource, rows: Sequence[ManifestRow], size: int = SIDE
) -> tuple[PropertyTest, ...]:
    """Test which properties of images go with their class, the strongest first.

    Files are read where the source has any: for their size, compression, date and camera.

    Args:
        source: Where the images come from.
        rows: Which of them; training images say what can be learnt.
        size: Pixels of the side to which images are scaled that are no files.
    """
    size = SIDE if hasattr(source, "root") else size
    if len(rows) > MOST_IMAGES:
        drawn = np.random.default_rng(0).choice(len(rows), MOST_IMAGES, replace=False)
        rows = [rows[number] for number in sorted(drawn.tolist())]
    with ThreadPoolExecutor(4) as pool:
        lines = list(pool.map(lambda row: _read(source, row, size), rows))
    frame = pd.DataFrame(lines, columns=list(UNITS))
    labels = np.array([row.class_name for row in rows])
    tests = [_test(name, frame[name], labels) for name in UNITS]
    told = sorted(filter(None, tests), key=lambda test: test.chance)
    # Holm: each chance times the tests that are left, never below the last
    left = np.arange(len(told), 0, -1)
    chances = np.minimum(1.0, left * [test.chance for test in told])
    adjusted = [
        replace(test, chance=chance)
        for test, chance in zip(told, np.maximum.accumulate(chances).tolist(), strict=True)
    ]
    return tuple(sorted(adjusted, key=lambda test: -test.strength))


def _test(name: str, values: pd.Series[Any], labels: NDArray[np.str_]) -> PropertyTest | None:
    """Test one property; None where it is the same everywhere or hardly known."""
    known = values.notna().to_numpy()
    values = values[known]
    labels = labels[known]
    if len(values) < 20 or values.nunique() < 2 or len(np.unique(labels)) < 2:
        return None
    is_number = pd.api.types.is_numeric_dtype(values)
    if is_number:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
        bins: Any = np.searchsorted(edges, values, side="right")
    else:
        frequent = values.value_counts().index[: BINS - 1]
        bins = values.where(values.isin(frequent), "")
    strength, chance = cramers_v(pd.crosstab(labels, bins).to_numpy())
    typical = {
        str(label): _typical(of_class, is_number) for label, of_class in values.groupby(labels)
    }
    return PropertyTest(name, strength, chance, typical, len(values))


def _typical(values: pd.Series[Any], is_number: bool) -> str:
    """Return the median, or the most frequent word and how frequent it is."""
    if is_number:
        return f"{values.median():.3g}"
    counts = values.value_counts(normalize=True)
    return f"{counts.index[0]} ({100 * counts.iloc[0]:.0f} %)"


def _read(source: ContextSource, row: ManifestRow, size: int) -> dict[str, Any]:
    """Return the properties of one image."""
    pixels = source.load(row.path, size, row.sha256).permute(1, 2, 0).numpy()
    properties = {**_of_pixels(pixels.astype(np.float64)), **_of_name(row)}
    root = getattr(source, "root", None)
    if root is not None:
        properties |= _of_file(Path(root), row.path)
    return properties


def _of_pixels(pixels: NDArray[np.float64]) -> dict[str, float]:
    grey = pixels.mean(axis=2)
    sides = (grey[:2], grey[-2:], grey[2:-2, :2], grey[2:-2, -2:])
    border = np.concatenate([side.ravel() for side in sides])
    laplacian = laplace(grey)[1:-1, 1:-1]
    high = pixels.max(axis=2)
    low = pixels.min(axis=2)
    red, green, blue = pixels.mean(axis=(0, 1))
    angle = np.arctan2(np.sqrt(3) * (green - blue), 2 * red - green - blue)
    return {
        "brightness": float(grey.mean()),
        "brightness of the border": float(border.mean()),
        "evenness of the border": float(border.std()),
        "hue": float(np.degrees(angle) % 360),
        "saturation": float(((high - low) / np.maximum(high, 1)).mean()),
        "sharpness": float(laplacian.std()),
    }


def _of_name(row: ManifestRow) -> dict[str, str]:
    """Return the folder, without what it says of class and context, and how the name begins."""
    path = PurePosixPath(row.path)
    told = {row.class_name, row.context, "train", "val", "test", "validation"}
    folders = [part for part in path.parts[:-1] if part not in told]
    prefix = re.match(r"[A-Za-z]+", path.stem)
    begins = prefix[0].lower() if prefix and len(prefix[0]) > 1 else "a number"
    return {"folder": "/".join(folders) or "none", "prefix of the file's name": begins}


def _of_file(root: Path, name: str) -> dict[str, Any]:
    """Return what a file says besides its pixels."""
    content = read_bytes(path_inside(root, name))
    with decoded(content) as upright:
        width, height = upright.size
    properties: dict[str, Any] = {
        "width": width,
        "height": height,
        "aspect": width / height,
        "bytes per pixel": len(content) / (width * height),
    }
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        properties["format"] = image.format
        tables = getattr(image, "quantization", None)
        if tables:
            properties["compression"] = float(np.mean(list(map(np.mean, tables.values()))))
        exif = image.getexif()
    if camera := str(exif.get(ExifTags.Base.Model, "")).strip("\0 "):
        properties["camera"] = camera
    taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
    taken = taken or exif.get(ExifTags.Base.DateTime)
    try:
        when = datetime.strptime(str(taken)[:10], "%Y:%m:%d")
        properties["date"] = when.year + (when.timetuple().tm_yday - 1) / 365
    except ValueError:
        pass
    return properties
