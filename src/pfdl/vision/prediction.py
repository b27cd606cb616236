"""A trained model's answers to any image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from pfdl._internal.validation import check_choice
from pfdl.data.features import FeatureTable
from pfdl.data.images import (
    BadImage,
    BadImageError,
    decoded,
    list_paths_below,
    path_inside,
    read_bytes,
    to_tensor,
)
from pfdl.data.opening import open_images
from pfdl.data.sources import ON_BAD_IMAGE, REMEDY, describe_bad_images
from pfdl.data.tables import is_table, list_paths
from pfdl.vision.embedding import check_features, on_images
from pfdl.vision.features import BATCH, run_model

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel


def predict(
    trained: TrainedModel,
    images: Any,
    *,
    path_column: str | None = None,
    image_root: str | Path | None = None,
    on_bad_image: str = "error",
    device: str = "cpu",
) -> tuple[pd.DataFrame, list[BadImage]]:
    """Classify images.

    Args:
        trained: The model.
        images: A file, a folder in which all files are classified, those in folders within it too,
            or a table with a line per image; or a list of these. In Python also a dataset, or what
            else :func:`pfdl.data.open_images` opens.
        path_column: Column of a table that has the path of the image; by default one of the usual
            names.
        image_root: Folder that the paths of a table are relative to; by default as
            :func:`pfdl.data.open_images` says.
        on_bad_image: ``"error"`` to refuse if a file is no usable image, ``"skip"`` to leave it
            out; for files alone.
        device: Where to compute.

    Returns:
        A line for each image, however often it is given, with the columns path, prediction,
        confidence and one for the probability of each class; and the files that could not be read,
        with the reasons.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no image can be used, or one cannot and is not to be left out.
    """
    check_choice("on_bad_image", on_bad_image, ON_BAD_IMAGE)
    trained = on_images(trained)
    size = trained.config.image_size
    places = [images] if isinstance(images, (str, Path)) else images
    bad: list[BadImage] = []
    reads: dict[str, Callable[[], Tensor]] = {}
    if isinstance(places, Sequence) and all(isinstance(place, (str, Path)) for place in places):
        for place in places:
            for name, find in _find_files(Path(place), path_column, image_root, bad):
                reads[name] = partial(_read, find, size)
    else:
        source = open_images(images)
        for sample in source.samples:
            reads[sample.path] = partial(source.load, sample.path, size, sample.sha256)
    paths, probabilities = _classify(trained, reads, bad, device)
    if bad and (on_bad_image == "error" or not paths):
        raise ValueError(describe_bad_images("what is given", bad, REMEDY))
    if not paths:
        raise ValueError(
            f"there is no image in {', '.join(map(str, places))}; give image files or folders of"
            " them."
        )
    return _tabulate(paths, torch.cat(probabilities), trained.config.classes), bad


def _classify(
    trained: TrainedModel,
    reads: Mapping[str, Callable[[], Tensor]],
    bad: list[BadImage],
    device: str,
) -> tuple[list[str], list[Tensor]]:
    """Return the names of the images that can be read, and the probabilities of each batch; the
    others join the bad ones.
    """
    names = list(reads)
    paths: list[str] = []
    probabilities: list[Tensor] = []
    for start in range(0, len(names), BATCH):
        tensors = []
        for name in names[start : start + BATCH]:
            try:
                tensors.append(reads[name]())
                paths.append(name)
            except BadImageError as error:
                bad.append(BadImage(name, str(error)))
        if tensors:
            logits, _ = run_model(trained.model, torch.stack(tensors), device=device)
            probabilities.append(logits.softmax(1))
    return paths, probabilities


def predict_features(trained: TrainedModel, table: FeatureTable) -> pd.DataFrame:
    """Classify the images of a file of features, as :func:`predict` does images.

    Raises:
        ValueError: If the model takes images, or features of another width or network.
    """
    if not trained.config.num_features:
        raise ValueError("the model takes images, not features; leave --features out.")
    check_features(trained.config, table)
    with torch.no_grad():
        logits = trained.model(torch.from_numpy(table.matrix))
    return _tabulate(table.paths, logits.softmax(1), trained.config.classes)


def _tabulate(paths: Sequence[str], shares: Tensor, classes: Sequence[str]) -> pd.DataFrame:
    confidence, answers = shares.max(1)
    words = {
        "path": list(paths),
        "prediction": [classes[number] for number in answers.tolist()],
        "confidence": confidence,
    }
    by_class = {f"probability of {name}": shares[:, number] for number, name in enumerate(classes)}
    return pd.DataFrame({**words, **by_class})


def _find_files(
    place: Path, path_column: str | None, image_root: str | Path | None, bad: list[BadImage]
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield the name of every image file and a function that returns its path; no link leads out of
    a folder.
    """
    if is_table(place) and place.is_file():
        for path in list_paths(place, path_column, image_root):
            yield str(path), partial(Path, path)
    elif place.is_file():
        yield str(place), partial(Path, place)
    elif place.is_dir():
        below: list[BadImage] = []
        for name in list_paths_below(place, below):
            yield str(place / name), partial(path_inside, place.resolve(), name)
        bad += [BadImage(str(place / file.path), file.reason) for file in below]
    else:
        raise FileNotFoundError(
            f"there is no file or folder {place}; name images, or a folder of them."
        )


def _read(find: Callable[[], Path], size: int) -> Tensor:
    with decoded(read_bytes(find())) as image:
        return to_tensor(image, size)
