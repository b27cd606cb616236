"""A trained image classifier diagnosed on the test images of its own split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.diagnosis import diagnose
from pfdl.diagnosis.result import Diagnosis
from pfdl.vision.checkpoint import TrainedModel
from pfdl.vision.features import attach
from pfdl.vision.pixels import normalise

IntArray = NDArray[np.int64]

_SURE = 2.0
"""Standard errors that a difference must exceed to be called one."""


@dataclass(frozen=True)
class Leaning:
    """Whether the answers of a model follow the context. Shares from 0 to 1.

    Attributes:
        at_home: Accuracy on images of a class in its dominant context, that of most training images of the class.
        elsewhere: Accuracy on all other images.
        standard_error: Of the difference of the two.
        misled: Of the wrong answers to images in a context that is dominant for other classes: the share that names
            one of those classes. NaN if there are none.
        misled_by_chance: What that share would be if wrong answers fell on all wrong classes alike.
        wrong_answers: Number of those wrong answers.
    """

    at_home: float
    elsewhere: float
    standard_error: float
    misled: float
    misled_by_chance: float
    wrong_answers: int

    @property
    def is_seen(self) -> bool:
        """Whether accuracy is lower elsewhere by more than two standard errors."""
        return self.at_home - self.elsewhere > _SURE * self.standard_error

    def sentences(self) -> tuple[str, ...]:
        """The same in words."""
        first = "It leans on the context" if self.is_seen else "No leaning on the context is seen"
        words = [
            f"{first}: accuracy is {100 * self.at_home:.0f} % where a class stands in its dominant training context "
            f"and {100 * self.elsewhere:.0f} % elsewhere (difference {100 * (self.at_home - self.elsewhere):.1f} ± "
            f"{100 * self.standard_error:.1f} points)."
        ]
        if self.wrong_answers:
            words.append(
                f"In contexts that are dominant for other classes, {100 * self.misled:.0f} % of {self.wrong_answers} "
                f"wrong answers name one of these; by chance it would be {100 * self.misled_by_chance:.0f} %."
            )
        return tuple(words)


@dataclass(frozen=True, eq=False)
class ImageDiagnosis:
    """A diagnosis and the images it was made on.

    Attributes:
        folder: The run.
        found: What :func:`pfdl.diagnose` found.
        leaning: Whether the answers follow the context; None if the data has no contexts.
        rows: The images, in the order of the samples.
        predictions: The class that the model gives to each image.
        images: The images themselves.
    """

    folder: Path
    found: Diagnosis
    leaning: Leaning | None
    rows: tuple[ManifestRow, ...]
    predictions: tuple[str, ...]
    images: ContextImages

    def verdict(self) -> tuple[str, ...]:
        """What was found, in sentences."""
        return (*(self.leaning.sentences() if self.leaning else ()), *self.found.verdict())


def diagnose_images(
    trained: TrainedModel, source: ContextSource, manifest: Manifest, *, device: str = "cpu", batch_size: int = 256
) -> ImageDiagnosis:
    """Diagnose a trained model on all test images of a manifest.

    Args:
        trained: The model.
        source: Where the images come from.
        manifest: Which image is in which set.
        device: Where to compute the features.
        batch_size: Images at a time.

    Returns:
        The diagnosis.

    Raises:
        ValueError: If the classes are not those of the model, images are missing, or no layer's input is features.
    """
    if manifest.classes != trained.config.classes:
        raise ValueError(
            f"the model knows the classes {', '.join(trained.config.classes)}, but the images are of "
            f"{', '.join(manifest.classes)}; diagnose it on the classes that it was trained on."
        )
    images = ContextImages(source, manifest, "test", size=trained.config.image_size, cache=False)
    features, answers = _run(trained, images, device, batch_size)
    rows = manifest.rows_of("test")
    labels = np.array([row.class_name for row in rows])
    contexts = np.array([row.context for row in rows])
    predictions = np.array(manifest.classes)[answers]
    has_contexts = bool((contexts != "").any())
    return ImageDiagnosis(
        folder=trained.folder,
        found=diagnose(features, labels, contexts if has_contexts else None, predictions=predictions),
        leaning=measure_leaning(labels, contexts, predictions, manifest.dominant) if has_contexts else None,
        rows=rows,
        predictions=tuple(predictions.tolist()),
        images=images,
    )


def measure_leaning(
    labels: Sequence[str] | NDArray[np.str_],
    contexts: Sequence[str] | NDArray[np.str_],
    predictions: Sequence[str] | NDArray[np.str_],
    dominant: Mapping[str, str],
) -> Leaning | None:
    """Compare the answers at home and elsewhere.

    Args:
        labels: The class of each image.
        contexts: The context of each image.
        predictions: The answer to each image.
        dominant: The dominant context of every class.

    Returns:
        What was seen; None if all images are at home, or none is.
    """
    triples = list(zip(labels, contexts, predictions, strict=True))
    at_home = np.array([dominant[label] == context for label, context, _ in triples])
    right = np.array([label == answer for label, _, answer in triples])
    if at_home.all() or not at_home.any():
        return None
    shares = [float(right[part].mean()) for part in (at_home, ~at_home)]
    variances = [_variance_of_share(right[part]) for part in (at_home, ~at_home)]
    misled, expected = [], []
    for label, context, answer in triples:
        tempting = {name for name, home in dominant.items() if home == context and name != label}
        if answer != label and tempting and dominant[label] != context:
            misled.append(answer in tempting)
            expected.append(len(tempting) / (len(dominant) - 1))
    return Leaning(
        at_home=shares[0],
        elsewhere=shares[1],
        standard_error=float(np.sqrt(sum(variances))),
        misled=float(np.mean(misled)) if misled else float("nan"),
        misled_by_chance=float(np.mean(expected)) if misled else float("nan"),
        wrong_answers=len(misled),
    )


def _variance_of_share(right: NDArray[np.bool_]) -> float:
    """With one more right and one more wrong answer, so that ten right ones of ten are not taken for certainty."""
    count = len(right) + 2
    share = (int(right.sum()) + 1) / count
    return share * (1 - share) / count


@torch.no_grad()
def _run(
    trained: TrainedModel, images: ContextImages, device: str, batch_size: int
) -> tuple[NDArray[np.float32], IntArray]:
    model = trained.model.to(device).eval()
    features, answers = [], []
    with attach(model) as tap:
        for batch, *_ in DataLoader(images, batch_size):
            logits = model(normalise(batch.to(device)))
            features.append(tap.features.float().cpu().numpy())
            answers.append(logits.argmax(1).cpu().numpy())
    return np.concatenate(features), np.concatenate(answers)
