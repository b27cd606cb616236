"""A trained image classifier diagnosed on images that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts.groups import Accuracies, Mixture, name_class
from pfdl.data.context_images import ContextImages
from pfdl.data.features import FeatureImages, pictures_of
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.diagnosis import Comparison, Diagnosis, Gap, compare_reliance, count_groups, diagnose
from pfdl.diagnosis.reliance import goes_together
from pfdl.diagnosis.result import NO_CONTEXTS, NONE_FOUND, NOT_CONFIRMED
from pfdl.diagnosis.verdict import NO, YES
from pfdl.vision.config import TrainingConfig
from pfdl.vision.embedding import inputs_of, kept_features
from pfdl.vision.evaluation import (
    Evaluation,
    check_classes,
    evaluate,
    measure_gap,
    split_names,
    training_mixture,
)
from pfdl.vision.features import run_model
from pfdl.vision.inferring import Described, describe_by_weights, infer_in_run, read_training
from pfdl.vision.refitting import REFIT

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

OTHER_IMAGES = "The two runs have different test images: differences are also those of the images."
OWN, OTHER, NAMED = "own", "other", "named"
KNOWN, INFERRED, UNCONFIRMED, UNKNOWN = "known", "inferred", "inferred, not confirmed", "unknown"
WORST_NAMED = 3
"""So many groups are named where the answer is not yes."""

Names = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class ImageDiagnosis:
    """A diagnosis and the images it was made on.

    Attributes:
        folder: The run.
        training: How the model was trained; the defaults where the run does not say.
        found: What :func:`pfdl.diagnose` found.
        rows: The images, in the order of the samples, without the sets that they are in.
        contexts: The context of each image, known or inferred; ``""`` if there are none.
        contexts_are: ``"known"``, ``"inferred"``, ``"inferred, not confirmed"`` or ``"unknown"``.
        predictions: The class that the model gives to each image.
        images: The images themselves.
        validation: Accuracies on the run's validation images; None where they are not at hand, or
            were refitted on.
        data_is: ``"own"``, of the split that the model was trained with; ``"other"``; or
            ``"named"``, other data that has contexts where the training has none.
    """

    folder: Path
    training: TrainingConfig
    found: Diagnosis
    rows: tuple[ManifestRow, ...]
    contexts: tuple[str, ...]
    contexts_are: str
    predictions: tuple[str, ...]
    images: ContextImages
    validation: Accuracies | None = None
    data_is: str = OWN

    @property
    def answer(self) -> str:
        """Whether the model relies on the context: ``"yes"``, ``"no"`` or ``"cannot tell"``."""
        return self.found.answer

    @property
    def accuracies(self) -> Accuracies:
        """The accuracies on the test images."""
        assert self.found.accuracies is not None, "a diagnosis of images has predictions"
        return self.found.accuracies

    @property
    def usual_contexts(self) -> dict[str, str]:
        """The context that goes with each class in training; empty where that is not known."""
        return {} if self.found.reliance is None else self.found.reliance.usual_contexts

    def verdict(self) -> tuple[str, ...]:
        """Say what was found in sentences, the answer first."""
        first, *rest = self.found.verdict()
        if self.contexts_are in (INFERRED, UNCONFIRMED):
            words = f"The contexts are not known: {len(set(self.contexts))} were inferred"
            doubt = ", and not confirmed: they may be looks of the objects themselves"
            rest.insert(0, f"{words}{doubt if self.contexts_are == UNCONFIRMED else ''}.")
            if self.answer != YES:
                rest.insert(1, self._errs_most())
        if len(set(self.predictions)) == 1 < len({row.class_name for row in self.rows}):
            rest.insert(
                0,
                f"It answers {name_class(self.predictions[0])} to every image: it learnt nothing.",
            )
        return (first, *rest)

    def _errs_most(self) -> str:
        """Name the groups of pictures that the model errs most on."""
        worst = sorted(self.accuracies.groups, key=lambda group: group.accuracy)[:WORST_NAMED]
        named = "; ".join(
            f"{group.name} ({100 * group.accuracy:.0f} % right of {group.samples})"
            for group in worst
        )
        return f"It errs most on these pictures: {named}."

    def samples_of(self, label: str | None, context: str, count: int) -> list[int]:
        """Return images of a group, those that are not recognised first.

        Args:
            label: The class; None for a few images of every class, whether recognised or not.
            context: The context; ``""`` where there are none.
            count: How many at most.
        """
        of_class = [
            number for number, row in enumerate(self.rows) if label in (None, row.class_name)
        ]
        inside = [number for number in of_class if self.contexts[number] == context]
        if label is None:  # the rows are in the order of the classes
            places = np.linspace(0, len(inside) - 1, min(count, len(inside))).round().astype(int)
            return [inside[place] for place in places]
        return sorted(inside, key=lambda number: self.predictions[number] == label)[:count]


def diagnose_images(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    *,
    trained_on: Manifest | None = None,
    device: str = "cpu",
    say: Callable[[str], None] = lambda what: None,
) -> ImageDiagnosis:
    """Diagnose a trained model on all test images of a manifest.

    Where the images have no contexts, contexts are inferred in the training images, by the call and
    with the answer of ``train --contexts inferred``, and recognised in the test images. Where they
    are merely stable and go with the classes, they serve to show pictures, and there is no answer.

    Args:
        trained: The model.
        source: Where the images come from.
        manifest: Which image is in which set.
        trained_on: The split of the training, which says what contexts go with which class; by
            default ``manifest``.
        device: Where to compute the features.
        say: Called with a few words before each part that takes a while.

    Returns:
        The diagnosis.

    Raises:
        ValueError: If images are of classes that the model does not know, images are missing, or no
            layer's input is features.
    """
    check_classes(trained, manifest)
    rows = manifest.rows_of("test")
    size = trained.config.image_size
    pictures = pictures_of(source)
    images = ContextImages(pictures, manifest, "test", size=size, cache=False)
    inputs = images
    if (given := inputs_of(trained.config, source)) is not pictures:
        inputs = ContextImages(given, manifest, "test", size=size, cache=False)
    say(f"Classifying {len(rows)} test images")
    logits, features = run_model(trained.model, inputs, device=device, with_features=True)
    predictions = np.array(trained.config.classes)[logits.argmax(1).numpy()]
    labels, contexts = split_names(rows)
    contexts_are = KNOWN
    if contexts is not None:
        training = _training_of(trained_on or manifest, rows)
    else:
        say("Inferring contexts")
        contexts, training, contexts_are = _infer_contexts(
            trained, source, manifest, trained_on or manifest, device
        )
    found = diagnose(features, labels, contexts, predictions=predictions, training=training)
    found = _with_doubts(found, contexts_are)
    validation = None
    if (
        "validation" in manifest.set_names
        and found.accuracies is not None
        and not (trained.folder / REFIT).exists()
    ):
        say(f"Classifying {len(manifest.rows_of('validation'))} validation images")
        validation = evaluate(trained, source, manifest, set_name="validation", device=device)
        mixed = _in_training_mixture(validation, source, manifest)
        gap = Gap(validation.overall, validation.images, found.accuracies.overall, len(rows), mixed)
        found = replace(found, gap=gap)
    elif found.accuracies is not None:
        found = replace(found, gap=measure_gap(trained.folder, found.accuracies.overall, len(rows)))
    data_is = OTHER
    if trained_on in (None, manifest):
        data_is = OWN
    elif contexts_are == KNOWN and not training:
        data_is = NAMED
    return ImageDiagnosis(
        folder=trained.folder,
        training=read_training(trained),
        found=found,
        rows=tuple(row._replace(sets=()) for row in rows),
        contexts=("",) * len(rows) if contexts is None else tuple(contexts.tolist()),
        contexts_are=contexts_are,
        predictions=tuple(predictions.tolist()),
        images=images,
        validation=validation,
        data_is=data_is,
    )


def _with_doubts(found: Diagnosis, contexts_are: str) -> Diagnosis:
    """Take back what contexts that nobody named cannot bear: a forecast, a no, and without
    confirmation a yes.
    """
    if contexts_are == KNOWN:
        return found
    if contexts_are == UNKNOWN:
        return replace(found, unanswered=NO_CONTEXTS)
    doubt = found.unanswered
    if contexts_are == UNCONFIRMED:
        doubt = NOT_CONFIRMED
    elif found.answer == NO:
        doubt = NONE_FOUND
    return replace(found, unanswered=doubt, shift=None)


def compare_diagnoses(first: ImageDiagnosis, second: ImageDiagnosis) -> Comparison:
    """Compare how much two models rely on the context; image by image, if they were tested on the
    same ones.
    """
    one, other = first.found.reliance, second.found.reliance
    if one is None or other is None:
        return Comparison(float("nan"), float("nan"))
    if (first.rows, first.contexts, one.usual_contexts) != (
        second.rows,
        second.contexts,
        other.usual_contexts,
    ):
        return Comparison(
            one.effect - other.effect, float(np.hypot(one.effect_error, other.effect_error))
        )
    labels: Names = np.array([row.class_name for row in first.rows])
    answers, others = np.array(first.predictions), np.array(second.predictions)
    return compare_reliance(labels, np.array(first.contexts), answers, others, one.usual_contexts)


def _training_of(manifest: Manifest, tested: Sequence[ManifestRow]) -> Mixture | None:
    """Return how many training images each group has; None where their contexts are not known."""
    if "train" not in manifest.set_names:
        return None
    named = [row for row in manifest.rows_of("train") if row.context]
    if not named:
        return None
    if all(row.context for row in tested):  # then no context is none of the contexts
        return count_groups(*split_names(named))
    return training_mixture(manifest)


def _in_training_mixture(
    validation: Evaluation, source: ContextSource, manifest: Manifest
) -> float:
    """Return the accuracy on validation images in the training mixture; NaN if it is not known.

    Validation images that were drawn from the training images have their mixture. A data set's own
    validation images need not have it; where their contexts are known, they are weighted.
    """
    if validation.by_context and validation.average_in_training_mixture is not None:
        return validation.average_in_training_mixture
    own = {sample.path for sample in source.samples if sample.split == "validation"}
    return (
        float("nan")
        if any(row.path in own for row in manifest.rows_of("validation"))
        else validation.overall
    )


class _Inferred(NamedTuple):
    """Contexts of the test images that nobody named, and the number of training images of each
    group.
    """

    contexts: Names | None
    training: Mixture | None
    are: str


def _infer_contexts(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    trained_on: Manifest,
    device: str,
) -> _Inferred:
    """Infer contexts in the training images, as training does, and recognise them in the test
    images.

    Where no training image is at hand, they are inferred in the test images alone, which cannot say
    what was usual in training.
    """
    config = read_training(trained)
    size, rows = trained.config.image_size, manifest.rows_of("test")
    numbers = {name: number for number, name in enumerate(trained.config.classes)}
    tested = Described(
        ContextImages(source, manifest, "test", size=size, cache=False),
        np.array([numbers[row.class_name] for row in rows]),
        rows,
    )
    training = _training_images(trained, source, manifest, trained_on, numbers)
    describe = describe_by_weights(config, len(numbers), device)
    found = infer_in_run(config, training or tested, tested, describe, unconfirmed=True)
    names = np.array([row.class_name for row in (training or tested).rows])
    counts = count_groups(names, _named(found.inferred.contexts))
    if found.inferred.number == 1 or not (found.is_confirmed or goes_together(counts)):
        return _Inferred(None, None, UNKNOWN)
    are = INFERRED if found.is_confirmed else UNCONFIRMED
    return _Inferred(_named(found.further), counts if training else None, are)


def _training_images(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    trained_on: Manifest,
    numbers: Mapping[str, int],
) -> Described | None:
    """Return the training images of a run, or the features that were kept of them; None where
    neither is at hand.
    """
    size = trained.config.image_size
    if "train" in manifest.set_names:
        images = ContextImages(source, manifest, "train", size=size)
        return Described.of(images, manifest.rows_of("train"))
    if "train" not in trained_on.set_names or not isinstance(source, FeatureImages):
        return None
    rows = trained_on.rows_of("train")
    kept = kept_features(source.fingerprint, [row.sha256 for row in rows])
    if kept is None:
        return None
    labels = np.array([numbers[row.class_name] for row in rows])
    return Described.by_features(kept, labels, rows)


def _named(contexts: NDArray[np.intp]) -> Names:
    """Return what inferred contexts are called; the numbers are those of contexts.csv."""
    return np.array([f"context {number}" for number in contexts.tolist()])
