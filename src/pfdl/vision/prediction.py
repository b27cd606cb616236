"""A trained model's answers: to sets of images, and to any image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pfdl._internal.text import spreadsheet_cell
from pfdl._internal.validation import check_choice
from pfdl.data.images import BadImage, BadImageError, decoded, list_paths_below, path_inside, read_bytes, to_tensor
from pfdl.data.opening import open_images
from pfdl.data.sources import ON_BAD_IMAGE, REMEDY, describe_bad_images
from pfdl.data.tables import is_table, list_paths
from pfdl.vision.features import attach
from pfdl.vision.pixels import normalise

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

BATCH = 256


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's answers to image files.

    Attributes:
        paths: The files.
        classes: Names of the classes.
        probabilities: Of each class for each file, shape (n, classes).
        bad_images: Files that could not be read, with the reasons.
    """

    paths: tuple[str, ...]
    classes: tuple[str, ...]
    probabilities: Tensor
    bad_images: tuple[BadImage, ...]

    @property
    def answers(self) -> list[str]:
        """The most probable class of each file."""
        return [self.classes[number] for number in self.probabilities.argmax(1).tolist()]

    def to_csv(self) -> str:
        """Write a table with the columns path, prediction, confidence and one for the probability of each class."""
        shares = self.probabilities.numpy()
        words = {"path": self.paths, "prediction": self.answers}
        table = pd.DataFrame({name: [spreadsheet_cell(word) for word in column] for name, column in words.items()})
        table["confidence"] = shares.max(1)
        names = [f"probability of {name}" for name in self.classes]
        table = pd.concat([table, pd.DataFrame(shares, columns=names)], axis=1)
        return table.to_csv(index=False, float_format="%.6f")


def predict(
    trained: TrainedModel,
    images: Any,
    *,
    path_column: str | None = None,
    image_root: str | Path | None = None,
    on_bad_image: str = "error",
    device: str = "cpu",
    batch_size: int = BATCH,
) -> Predictions:
    """Classify images.

    Args:
        trained: The model.
        images: A file, a folder in which all files are classified, those in folders within it too, or a table with a
            line per image; or a list of these. In Python also a dataset, or what else
            :func:`pfdl.data.open_images` opens.
        path_column: Column of a table that has the path of the image; by default one of the usual names.
        image_root: Folder that the paths of a table are relative to; by default as :func:`pfdl.data.open_images` says.
        on_bad_image: ``"error"`` to refuse if a file is no usable image, ``"skip"`` to leave it out.
        device: Where to compute.
        batch_size: Images at a time.

    Returns:
        The answers, in the order of the paths.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no image can be used, or one cannot and is not to be left out.
    """
    check_choice("on_bad_image", on_bad_image, ON_BAD_IMAGE)
    size = trained.config.image_size
    places = [images] if isinstance(images, (str, Path)) else images
    reads: dict[str, Callable[[], Tensor]]
    if isinstance(places, Sequence) and all(isinstance(place, (str, Path)) for place in places):
        reads = dict(one for place in places for one in _readers(Path(place), path_column, image_root, size))
    else:
        source = open_images(images)
        reads = {sample.path: partial(source.load, sample.path, size, sample.sha256) for sample in source.samples}
    names = list(reads)
    paths: list[str] = []
    bad: list[BadImage] = []
    probabilities: list[Tensor] = []
    for start in range(0, len(names), batch_size):
        tensors = []
        for name in names[start : start + batch_size]:
            try:
                tensors.append(reads[name]())
                paths.append(name)
            except BadImageError as error:
                bad.append(BadImage(name, str(error)))
        if tensors:
            logits, _ = run_model(trained.model, [(tensor,) for tensor in tensors], device=device)
            probabilities.append(logits.softmax(1))
    if bad and (on_bad_image == "error" or not paths):
        raise ValueError(describe_bad_images(Path(places[0]), bad, REMEDY))
    if not paths:
        raise ValueError(f"there is no image in {', '.join(map(str, places))}; give image files or folders of them.")
    return Predictions(tuple(paths), trained.config.classes, torch.cat(probabilities), tuple(bad))


@torch.no_grad()
def run_model(
    model: nn.Module,
    images: Dataset[tuple[Tensor, int, int]] | Sequence[tuple[Tensor, ...]],
    *,
    device: str = "cpu",
    batch_size: int = BATCH,
    with_features: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the logits of images as bytes, which the items begin with, and the features if they are wanted."""
    model = model.to(device).eval()
    logits, features = [], []
    with attach(model) if with_features else nullcontext() as tap:
        for batch, *_ in DataLoader(images, batch_size):  # type: ignore[arg-type]
            logits.append(model(normalise(batch.to(device))).float().cpu())
            if tap is not None:
                features.append(tap.features.float().cpu())
    return torch.cat(logits), torch.cat(features) if with_features else None


def _readers(
    place: Path, path_column: str | None, image_root: str | Path | None, size: int
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield the name of every image and a function that reads it; no link leads out of a folder."""
    if is_table(place) and place.is_file():
        for path in list_paths(place, path_column, image_root):
            yield str(path), partial(_read, path, size)
    elif place.is_file():
        yield str(place), partial(_read, place, size)
    elif place.is_dir():
        bad: list[BadImage] = []
        for name in list_paths_below(place, bad):
            yield str(place / name), partial(_read, name, size, place.resolve())
        for one in bad:
            yield str(place / one.path), partial(_refuse, one.reason)
    else:
        raise FileNotFoundError(f"there is no file or folder {place}; name images, or a folder of them.")


def _read(path: str | Path, size: int, root: Path | None = None) -> Tensor:
    with decoded(read_bytes(Path(path) if root is None else path_inside(root, str(path)))) as image:
        return to_tensor(image, size)


def _refuse(reason: str) -> Tensor:
    raise BadImageError(reason)
