"""A trained image classifier diagnosed on images that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from pfdl.contexts.groups import Accuracies, GroupAccuracy, Mixture, measure_accuracy, name_class
from pfdl.contexts.sources import Describe
from pfdl.data.context_images import ContextImages
from pfdl.data.features import FeatureImages, is_at_hand, pictures_of
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.diagnosis import Comparison, Diagnosis, Gap, compare_reliance, count_groups, diagnose
from pfdl.diagnosis.reliance import goes_together
from pfdl.diagnosis.result import NO_CONTEXTS, NONE_FOUND, NOT_CONFIRMED
from pfdl.diagnosis.verdict import NO, YES
from pfdl.vision.answers import AnswerTable
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
from pfdl.vision.properties import PropertyTest, find_properties
from pfdl.vision.refitting import REFIT

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

OTHER_IMAGES = "The two runs have different test images: differences are also those of the images."
OWN, OTHER, NAMED, ANSWERS = "own", "other", "named", "answers"
KNOWN, INFERRED, UNCONFIRMED, UNKNOWN = "known", "inferred", "inferred, not confirmed", "unknown"
THUMBNAIL = 96
"""Height and width of the pictures of a model that was trained elsewhere."""

WORST_NAMED = PROPERTIES_NAMED = 3
"""So many groups are named where the answer is not yes."""

Names = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class ImageDiagnosis:
    """A diagnosis and the images it was made on.

    Attributes:
        folder: The run; or the table of answers.
        training: How the model was trained; the defaults where the run does not say.
        found: What :func:`pfdl.diagnose` found.
        rows: The images, in the order of the samples, without the sets that they are in.
        contexts: The context of each image, known or inferred; ``""`` if there are none.
        contexts_are: ``"known"``, ``"inferred"``, ``"inferred, not confirmed"`` or ``"unknown"``.
        predictions: The class that the model gives to each image.
        images: The images themselves; None where they are not at hand.
        validation: Accuracies on the run's validation images; None where they are not at hand, or
            were refitted on.
        data_is: ``"own"``, of the split that the model was trained with; ``"other"``;
            ``"named"``, other data that has contexts where the training has none; or
            ``"answers"``, a table of the answers of a model that was trained elsewhere.
        network: What computed the features that the model takes; ``""`` for a model on images.
        properties: Plain properties of the training images, or else of the tested ones, and how
            they go with the class.
    """

    folder: Path
    training: TrainingConfig
    found: Diagnosis
    rows: tuple[ManifestRow, ...]
    contexts: tuple[str, ...]
    contexts_are: str
    predictions: tuple[str, ...]
    images: ContextImages | None = None
    validation: Accuracies | None = None
    data_is: str = OWN
    network: str = ""
    properties: tuple[PropertyTest, ...] = ()

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
            if self.answer != YES and self._worst_groups():
                rest.insert(1, self._errs_most())
        if telling := [test for test in self.properties if test.matters][:PROPERTIES_NAMED]:
            words = "; ".join(test.sentence() for test in telling)
            rest.append(f"These properties of the files go with the class: {words}.")
        if len(set(self.predictions)) == 1 < len({row.class_name for row in self.rows}):
            rest.insert(
                0,
                f"It answers {name_class(self.predictions[0])} to every image: it learnt nothing.",
            )
        return (first, *rest)

    def _errs_most(self) -> str:
        """Name the groups of pictures that the model errs most on."""
        named = "; ".join(
            f"{group.name} ({100 * group.accuracy:.0f} % right of {group.samples})"
            for group in self._worst_groups()
        )
        return f"It errs most on these pictures: {named}."

    def _worst_groups(self) -> list[GroupAccuracy]:
        """Return the groups in which the model errs, the worst first."""
        wrong = [group for group in self.accuracies.groups if group.accuracy < 1]
        return sorted(wrong, key=lambda group: group.accuracy)[:WORST_NAMED]

    def samples_of(self, label: str | None, context: str, count: int) -> list[int]:
        """Return images of a group, those that are not recognised first.

        Args:
            label: The class; None for a few images of every class, whether recognised or not.
            context: The context; ``""`` where there are none.
            count: How many at most.
        """
        inside = self.inside(label, context)
        if label is None:  # the rows are in the order of the classes
            return spread(inside, count)
        return sorted(inside, key=lambda number: self.predictions[number] == label)[:count]

    def inside(self, label: str | None, context: str) -> list[int]:
        """Return all images of a group; of all classes in a context, if the label is None."""
        return [
            number
            for number, row in enumerate(self.rows)
            if label in (None, row.class_name) and self.contexts[number] == context
        ]


def spread(samples: Sequence[int], count: int) -> list[int]:
    """Return so many of the samples, from the first to the last in equal steps."""
    places = np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(int)
    return [samples[place] for place in places]


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
    training = read_training(trained)
    size = trained.config.image_size
    inputs = inputs_of(trained.config, source)
    images = ContextImages(inputs, manifest, "test", size=size, cache=False)
    say(f"Classifying {len(images)} test images")
    logits, features = run_model(trained.model, images, device=device, with_features=True)
    predictions = np.array(trained.config.classes)[logits.argmax(1).numpy()]
    describing = describe_by_weights(training, len(trained.config.classes), device)
    contexts = _find_contexts(training, source, manifest, trained_on or manifest, describing, say)
    say("Looking at the properties of the files")
    tested = _Tested(trained.folder, training, manifest, predictions, contexts, features)
    diagnosis = _diagnose(tested, pictures_of(source), size)
    data_is = OTHER
    if trained_on in (None, manifest):
        data_is = OWN
    elif contexts.are == KNOWN and not contexts.training:
        data_is = NAMED
    diagnosis = replace(diagnosis, data_is=data_is, network=trained.config.network)
    if not _can_validate(trained, manifest, inputs):
        gap = measure_gap(trained.folder, diagnosis.accuracies.overall, len(images))
        return replace(diagnosis, found=replace(diagnosis.found, gap=gap))
    say("Classifying the validation images")
    validation = evaluate(trained, source, manifest, set_name="validation", device=device)
    mixed = _in_training_mixture(validation, source, manifest)
    return _with_validation(diagnosis, validation, mixed)


def _can_validate(trained: TrainedModel, manifest: Manifest, inputs: ContextSource) -> bool:
    """Return whether there are validation images that the model was not refitted on."""
    if "validation" not in manifest.set_names or (trained.folder / REFIT).exists():
        return False
    return is_at_hand(inputs, manifest.rows_of("validation"))


def diagnose_answers(
    path: Path,
    answers: AnswerTable,
    source: ContextSource | None,
    say: Callable[[str], None] = lambda what: None,
) -> ImageDiagnosis:
    """Diagnose a model by its answers alone, wherever it was trained.

    Contexts are those of the table. Where it has none and there are images, or features of them,
    contexts are inferred: in the training images, if the table has them, and recognised in the
    others.

    Args:
        path: The table, which gives the diagnosis its name.
        answers: What it holds.
        source: The images, or features in their place; None where neither is at hand.
        say: Called with a few words before what takes a while.
    """
    manifest = answers.manifest
    training = TrainingConfig("small")
    contexts = _find_contexts(training, source, manifest, manifest, None, say)
    if answers.source is not None:
        say("Looking at the properties of the files")
    predictions = answers.of(manifest.rows_of("test"))
    tested = _Tested(path, training, manifest, predictions, contexts)
    diagnosis = replace(_diagnose(tested, answers.source, THUMBNAIL), data_is=ANSWERS)
    if "validation" not in manifest.set_names:
        return diagnosis
    held_out = manifest.rows_of("validation")
    labels, places = split_names(held_out)
    validation = measure_accuracy(answers.of(held_out) == labels, labels, places)
    return _with_validation(diagnosis, validation)


class _Tested(NamedTuple):
    """A model's answers to the test images of a manifest, and what is known of their contexts."""

    folder: Path
    training: TrainingConfig
    manifest: Manifest
    predictions: Names
    contexts: _Contexts
    features: Any = None


def _diagnose(tested: _Tested, pictures: ContextSource | None, size: int) -> ImageDiagnosis:
    """Judge answers by what is known of the contexts, and look at the properties of the training
    images, or where these are not at hand of the test images.
    """
    manifest, contexts = tested.manifest, tested.contexts
    rows = manifest.rows_of("test")
    labels = np.array([row.class_name for row in rows])
    result = diagnose(
        tested.features,
        labels,
        contexts.names,
        predictions=tested.predictions,
        training=contexts.training,
    )
    diagnosis = ImageDiagnosis(
        folder=tested.folder,
        training=tested.training,
        found=_with_doubts(result, contexts.are),
        rows=tuple(row._replace(sets=()) for row in rows),
        contexts=contexts.of_rows(len(rows)),
        contexts_are=contexts.are,
        predictions=tuple(tested.predictions.tolist()),
    )
    if pictures is None:
        return diagnosis
    if "train" in manifest.set_names and is_at_hand(pictures, manifest.rows_of("train")):
        rows = manifest.rows_of("train")
    images = ContextImages(pictures, manifest, "test", size=size, cache=False)
    return replace(diagnosis, images=images, properties=find_properties(pictures, rows, size))


def _with_validation(
    diagnosis: ImageDiagnosis, validation: Accuracies, in_mixture: float = float("nan")
) -> ImageDiagnosis:
    """Set accuracies on validation images beside those on the test images."""
    held_out = sum(group.samples for group in validation.groups)
    tested = diagnosis.accuracies.overall
    gap = Gap(validation.overall, held_out, tested, len(diagnosis.rows), in_mixture)
    result = replace(diagnosis.found, gap=gap)
    return replace(diagnosis, found=result, validation=validation)


def _with_doubts(result: Diagnosis, contexts_are: str) -> Diagnosis:
    """Take back what contexts that nobody named cannot bear: a forecast, a no, and without
    confirmation a yes.
    """
    if contexts_are == KNOWN:
        return result
    if contexts_are == UNKNOWN:
        return replace(result, unanswered=NO_CONTEXTS)
    doubt = result.unanswered
    if contexts_are == UNCONFIRMED:
        doubt = NOT_CONFIRMED
    elif result.answer == NO:
        doubt = NONE_FOUND
    return replace(result, unanswered=doubt, shift=None)


def compare_diagnoses(first: ImageDiagnosis, second: ImageDiagnosis) -> Comparison:
    """Compare how much two models rely on the context; image by image, if they were tested on the
    same ones.
    """
    reliance, other = first.found.reliance, second.found.reliance
    if reliance is None or other is None:
        return Comparison(float("nan"), float("nan"))
    same_images = (first.rows, first.contexts) == (second.rows, second.contexts)
    if not same_images or reliance.usual_contexts != other.usual_contexts:
        error = float(np.hypot(reliance.effect_error, other.effect_error))
        return Comparison(reliance.effect - other.effect, error)
    return compare_reliance(
        np.array([row.class_name for row in first.rows]),
        np.array(first.contexts),
        np.array(first.predictions),
        np.array(second.predictions),
        reliance.usual_contexts,
    )


def compare_all(named: Mapping[str, ImageDiagnosis]) -> tuple[list[str], str]:
    """Say how much each model relies on the context beside the first; and a warning if their images
    differ, else "".
    """
    (first_name, first), *others = named.items()
    sentences = [
        compare_diagnoses(first, other).sentence(first_name, name) for name, other in others
    ]
    differ = any(other.rows != first.rows for _, other in others)
    return sentences, OTHER_IMAGES if differ else ""


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
    if any(row.path in own for row in manifest.rows_of("validation")):
        return float("nan")
    return validation.overall


class _Contexts(NamedTuple):
    """Contexts of the tested images, the number of training images of each group, and whence both
    are; None where they are not known.
    """

    names: Names | None
    training: Mixture | None
    are: str

    def of_rows(self, count: int) -> tuple[str, ...]:
        """Return the context of each image, ``""`` where there are none."""
        return ("",) * count if self.names is None else tuple(self.names.tolist())


def _find_contexts(
    config: TrainingConfig,
    source: ContextSource | None,
    manifest: Manifest,
    trained_on: Manifest,
    describe: Describe | None,
    say: Callable[[str], None],
) -> _Contexts:
    """Return contexts that are known; else infer them in the training images, as training does, and
    recognise them in the test images.

    Where no training image is at hand, they are inferred in the test images alone, which cannot say
    what was usual in training.
    """
    rows = manifest.rows_of("test")
    _, known = split_names(rows)
    if known is not None:
        return _Contexts(known, _training_of(trained_on, rows), KNOWN)
    if source is None:
        return _Contexts(None, None, UNKNOWN)
    say("Inferring contexts")
    size = config.image_size
    tested = Described.of_set(source, manifest, "test", size)
    training = _training_images(source, manifest, trained_on, size)
    inference = infer_in_run(config, training or tested, tested, describe, unconfirmed=True)
    classes, _ = split_names((training or tested).rows)
    counts = count_groups(classes, _named(inference.inferred.contexts))
    if inference.inferred.number == 1 or not (inference.is_confirmed or goes_together(counts)):
        return _Contexts(None, None, UNKNOWN)
    are = INFERRED if inference.is_confirmed else UNCONFIRMED
    return _Contexts(_named(inference.further), counts if training else None, are)


def _training_images(
    source: ContextSource, manifest: Manifest, trained_on: Manifest, size: int
) -> Described | None:
    """Return the training images of a run, or the features that were kept of them; None where
    neither is at hand.
    """
    if "train" in manifest.set_names and is_at_hand(source, manifest.rows_of("train")):
        return Described.of_set(source, manifest, "train", size)
    if "train" not in trained_on.set_names or not isinstance(source, FeatureImages):
        return None
    classes = list(manifest.classes)
    rows = [row for row in trained_on.rows_of("train") if row.class_name in classes]
    hashes = [row.sha256 for row in rows]
    kept = kept_features(source.fingerprint, hashes)
    if kept is None:
        return None
    labels = np.array([classes.index(row.class_name) for row in rows])
    features = TensorDataset(torch.from_numpy(kept), torch.from_numpy(labels))
    return Described(features, labels, rows)


def _named(contexts: NDArray[np.intp]) -> Names:
    """Return what inferred contexts are called; the numbers are those of contexts.csv."""
    return np.array([f"context {number}" for number in contexts.tolist()])
