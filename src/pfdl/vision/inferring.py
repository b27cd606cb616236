"""Contexts of test images that have none, inferred from how the images look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl._internal.files import read_json, write_json
from pfdl._internal.provenance import version_of
from pfdl.contexts import find_contexts
from pfdl.contexts.statistics import image_statistics
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.diagnosis import count_groups
from pfdl.diagnosis.reliance import goes_together

MOST_INFERRED = 4000
"""So many training images at most help to infer the contexts of the test images."""

INFERRING_SIZE = 64
"""Height and width at most of the images that contexts are inferred from: colours and textures need no more."""

STABLE = 0.8
"""How well halves of the statistics must agree on clusters that are used without being confirmed."""

CACHE = "diagnosis-contexts.json"
"""In a run folder, the contexts that a diagnosis inferred."""

Names = NDArray[np.str_]


def infer_test_contexts(
    source: ContextSource, manifest: Manifest, size: int, cache: Path | None, say: Callable[[str], None]
) -> tuple[Names | None, dict[tuple[Any, Any], float] | None, bool]:
    """Infer contexts of the test images together with training images, so that it is known which were usual there.

    Args:
        source: Where the images come from.
        manifest: Which image is in which set.
        size: Height and width of the images that the model sees.
        cache: A file that keeps what was inferred for the next time; it is made again where the images are others.
        say: Called with a few words before what takes a while.

    Returns:
        The context of each test image, None if none were found; the number of training images of each (class,
        context), None without them; and whether the contexts were confirmed as by :func:`pfdl.infer_contexts`.
    """
    size = min(size, INFERRING_SIZE)
    rows = list(manifest.rows_of("test"))
    chosen: list[int] = []
    if "train" in manifest.set_names:
        train_rows = manifest.rows_of("train")
        chosen = torch.randperm(len(train_rows), generator=torch.Generator().manual_seed(0))[:MOST_INFERRED].tolist()
        rows += [train_rows[number] for number in chosen]
    tested = len(rows) - len(chosen)
    names = np.array([row.class_name for row in rows])
    content = [version_of("pfdl"), size, tested, [[row.sha256, row.class_name] for row in rows]]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    groups, confirmed = _cached(cache, key, len(rows)) or (None, False)
    if groups is None:
        say(f"Inferring contexts from {len(rows)} images" + (", kept for the next time" if cache else ""))
        pixels = [ContextImages(source, manifest, "test", size=size).images]
        if chosen:
            train = ContextImages(source, manifest, "train", size=size, cache=False)
            pixels.append(torch.stack([train[number][0] for number in chosen]))
        groups, confirmed = _cluster(image_statistics(torch.cat(pixels)), names, tested)
        if cache is not None:
            write_json(cache, {"key": key, "contexts": groups, "confirmed": confirmed})
    if not groups:
        return None, None, False
    contexts = np.array([f"context {group + 1}" for group in groups])
    training = count_groups(names[tested:], contexts[tested:]) if chosen else None
    return contexts[:tested], training, confirmed


def _cached(cache: Path | None, key: str, samples: int) -> tuple[list[int], bool] | None:
    """Return what the file has for these images: the group of each, or an empty list if there are no contexts."""
    if cache is None or not cache.is_file():
        return None
    try:
        stored = read_json(cache)
        groups, confirmed = stored["contexts"], stored["confirmed"]
        sound = stored["key"] == key and isinstance(confirmed, bool) and len(groups) in (0, samples)
        return (groups, confirmed) if sound and all(type(group) is int for group in groups) else None
    except (KeyError, OSError, TypeError, ValueError):
        return None  # it is inferred and written again


def _cluster(statistics: Tensor, names: Names, tested: int) -> tuple[list[int], bool]:
    """Find clusters that may be contexts, and whether they were confirmed; none of them in an empty list.

    What a short training predicts or gets wrong is no help here: its errors are also those of hard images.
    """
    labels = np.unique(names, return_inverse=True)[1]
    for method in ("pooled", "within"):
        found = find_contexts(statistics, labels, method=method)
        if found.number > 1:
            return found.contexts.tolist(), True
    found = find_contexts(statistics, labels, method="pooled", confirmation=0.0)
    stable = any(trial.stability >= STABLE for trial in found.tried)
    trained = slice(tested, None) if len(names) > tested else slice(None)
    if found.number > 1 and stable and goes_together(count_groups(names[trained], found.contexts[trained])):
        return found.contexts.tolist(), False
    return [], False
