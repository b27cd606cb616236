"""A trained image classifier diagnosed on images that it was not trained on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfdl._internal.runs import read_run
from pfdl._internal.settings import write_options
from pfdl.contexts import find_contexts
from pfdl.contexts.statistics import image_statistics
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.diagnosis import Comparison, Diagnosis, compare_reliance, count_groups, diagnose
from pfdl.diagnosis.reliance import goes_together, usual_contexts_of
from pfdl.diagnosis.verdict import NO, YES
from pfdl.vision.config import TrainingConfig
from pfdl.vision.evaluation import check_classes, split_names, training_mixture
from pfdl.vision.prediction import BATCH, run_model

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

MOST_INFERRED = 4000
"""So many training images at most help to infer the contexts of the test images."""

INFERRING_SIZE = 64
"""Height and width at most of the images that contexts are inferred from: colours and textures need no more."""

STABLE = 0.8
"""How well halves of the statistics must agree on clusters that are used without being confirmed."""

KNOWN, INFERRED, UNCONFIRMED, UNKNOWN = "known", "inferred", "inferred, not confirmed", "unknown"

Names = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class ImageDiagnosis:
    """A diagnosis and the images it was made on.

    Attributes:
        folder: The run.
        training: How the model was trained; the defaults where the run does not say.
        found: What :func:`pfdl.diagnose` found.
        rows: The images, in the order of the samples.
        contexts: The context of each image, known or inferred; ``""`` if there are none.
        contexts_are: ``"known"``, ``"inferred"``, ``"inferred, not confirmed"`` or ``"unknown"``.
        usual: The context that goes with each class in training.
        predictions: The class that the model gives to each image.
        images: The images themselves.
    """

    folder: Path
    training: TrainingConfig
    found: Diagnosis
    rows: tuple[ManifestRow, ...]
    contexts: tuple[str, ...]
    contexts_are: str
    usual: Mapping[str, str]
    predictions: tuple[str, ...]
    images: ContextImages

    @property
    def answer(self) -> str:
        """Whether the model relies on the context: ``"yes"``, ``"no"`` or ``"cannot tell"``."""
        return self.found.answer

    def verdict(self) -> tuple[str, ...]:
        """Say what was found in sentences, the answer first."""
        first, *rest = self.found.verdict()
        if self.contexts_are in (INFERRED, UNCONFIRMED):
            words = f"The contexts are not known: {len(set(self.contexts))} were inferred from colours and textures"
            doubt = ", and not confirmed: they may be looks of the objects themselves"
            rest.insert(0, f"{words}{doubt if self.contexts_are == UNCONFIRMED else ''}.")
        return (first, *rest)

    def worst_samples(self, count: int) -> list[int]:
        """Return images of the worst group, those that are not recognised first."""
        if self.found.accuracies is None:
            return []
        worst = self.found.accuracies.worst_group
        inside = [
            number
            for number, (row, context) in enumerate(zip(self.rows, self.contexts, strict=True))
            if row.class_name == worst.label and context == worst.context
        ]
        inside.sort(key=lambda number: self.predictions[number] == self.rows[number].class_name)
        return inside[:count]

    def next_step(self, data: str, options: Sequence[str] = ()) -> tuple[str, str]:
        """Say what to try next.

        Args:
            data: What the user called the data on the command line.
            options: Further words of the command line that say how to read the data.

        Returns:
            A sentence, and a command.
        """
        run = shlex.quote(str(self.folder))
        images = shlex.join([data, *options])
        if self.answer == YES:
            return self._train_next(images)
        if self.answer == NO:
            return "No change is needed for these contexts. Test other data:", (f"pfdl evaluate {run} OTHER_DATA")
        if self.contexts_are == UNKNOWN:
            return (
                "Say which context each image has: in folders class/context/image, or in a column of a table.",
                f"pfdl diagnose {run} TABLE.csv --columns context=NAME",
            )
        return "Give more images that were not trained on, in all contexts.", f"pfdl diagnose {run} MORE_DATA"

    def _train_next(self, images: str) -> tuple[str, str]:
        """Name a training like that of the run but for what it does about contexts, and that was not tried already."""
        contexts: dict[str, Any] = {"contexts": KNOWN if self.contexts_are == KNOWN else INFERRED, "infer_by": "auto"}
        contexts["confirm"] = self.contexts_are != UNCONFIRMED
        if self.contexts_are == UNCONFIRMED:
            contexts["infer_by"] = "pooled"  # as they were found here
        now = self.training
        plain = replace(now, objective_settings={}, sampler="shuffle", **contexts)
        tries = {
            "groups": (
                "Draw every class in every context equally often, then compare (pfdl diagnose … --compare).",
                replace(plain, objective="erm", sampler="groups"),
            ),
            "groupdro": (
                "Train with an objective that looks at the worst group, then compare (pfdl diagnose … --compare).",
                replace(plain, objective="groupdro"),
            ),
        }
        name = self.folder.name
        for suffix in tries:
            name = name.removesuffix(f"-{suffix}")
        tried = [config for _, config in tries.values()]
        if now == tried[-1]:
            more = shlex.join([*write_options(now), "-o", str(self.folder.with_name(f"{name}-more"))])
            return "Add training images of the affected classes in other contexts.", f"pfdl train MORE_DATA {more}"
        suffix, (sentence, config) = list(tries.items())[now == tried[0]]
        folder = self.folder.with_name(f"{name}-{suffix}{'' if config.confirm else '-unconfirmed'}")
        return sentence, f"pfdl train {images} {shlex.join([*write_options(config), '-o', str(folder)])}"


def _read_training(trained: TrainedModel) -> TrainingConfig:
    """Read how a model was trained; of what the run does not say, the default."""
    try:
        return TrainingConfig(**read_run(trained.folder).settings["training"])
    except (KeyError, OSError, TypeError, ValueError):
        model = trained.config
        return TrainingConfig(backbone=model.backbone, image_size=model.image_size, small_stem=model.small_stem)


def diagnose_images(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    *,
    trained_on: Manifest | None = None,
    device: str = "cpu",
    batch_size: int = BATCH,
) -> ImageDiagnosis:
    """Diagnose a trained model on all test images of a manifest.

    Where the images have no contexts, contexts are inferred from them, and from training images of the same source if
    the manifest has them: clusters of :func:`pfdl.image_statistics`. They should be confirmed as by
    :func:`pfdl.infer_contexts`; where they are merely stable and go with the classes, they are used with a caution,
    because here it is the model itself that shows whether they matter.

    Args:
        trained: The model.
        source: Where the images come from.
        manifest: Which image is in which set.
        trained_on: The split of the training, which says what contexts go with which class; by default ``manifest``.
        device: Where to compute the features.
        batch_size: Images at a time.

    Returns:
        The diagnosis.

    Raises:
        ValueError: If images are of classes that the model does not know, images are missing, or no layer's input is
            features.
    """
    check_classes(trained, manifest)
    images = ContextImages(source, manifest, "test", size=trained.config.image_size, cache=False)
    logits, features = run_model(trained.model, images, device=device, batch_size=batch_size, with_features=True)
    predictions = np.array(trained.config.classes)[logits.argmax(1).numpy()]
    rows = manifest.rows_of("test")
    labels, contexts = split_names(rows)
    usual: Mapping[str, str] | None = None
    contexts_are = KNOWN
    if contexts is not None:
        training, usual = _training_of(trained_on or manifest)
    else:
        contexts, training, confirmed = _infer(source, manifest, trained.config.image_size, labels)
        contexts_are = UNKNOWN if contexts is None else INFERRED if confirmed else UNCONFIRMED
    if usual is None and training is None and contexts is not None and goes_together(count_groups(labels, contexts)):
        training = count_groups(labels, contexts)
    if usual is None and training is not None:
        usual = usual_contexts_of(training)
    found = diagnose(features, labels, contexts, predictions=predictions, training=training, usual_contexts=usual)
    if contexts is None:
        found = replace(found, unanswered="the images have no contexts, and none could be inferred from them")
    return ImageDiagnosis(
        folder=trained.folder,
        training=_read_training(trained),
        found=found,
        rows=rows,
        contexts=("",) * len(rows) if contexts is None else tuple(contexts.tolist()),
        contexts_are=contexts_are,
        usual=usual or {},
        predictions=tuple(predictions.tolist()),
        images=images,
    )


def compare_diagnoses(first: ImageDiagnosis, second: ImageDiagnosis) -> Comparison:
    """Compare how much two models rely on the context; image by image, if they were tested on the same ones."""
    one, other = first.found.reliance, second.found.reliance
    if one is None or other is None:
        return Comparison(float("nan"), float("nan"))
    same = first.rows == second.rows and first.contexts == second.contexts and first.usual == second.usual
    if not same:
        return Comparison(one.effect - other.effect, float(np.hypot(one.effect_error, other.effect_error)))
    labels = np.array([row.class_name for row in first.rows])
    answers, others = np.array(first.predictions), np.array(second.predictions)
    return compare_reliance(labels, np.array(first.contexts), answers, others, first.usual)


def _training_of(manifest: Manifest) -> tuple[dict[tuple[Any, Any], float] | None, Mapping[str, str] | None]:
    """Return how many training images each group has, and the usual contexts where the protocol fixed them."""
    if "train" not in manifest.set_names or not any(row.context for row in manifest.rows_of("train")):
        return None, None
    usual = manifest.dominant if manifest.parameters.get("protocol") == "proportional" else None
    return training_mixture(manifest), usual


def _infer(
    source: ContextSource, manifest: Manifest, size: int, labels: Names
) -> tuple[Names | None, dict[tuple[Any, Any], float] | None, bool]:
    """Infer contexts of the test images together with training images, so that it is known which were usual there."""
    size = min(size, INFERRING_SIZE)
    pixels, names = [ContextImages(source, manifest, "test", size=size).images], labels
    if "train" in manifest.set_names:
        train = ContextImages(source, manifest, "train", size=size, cache=False)
        chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MOST_INFERRED].tolist()
        pixels.append(torch.stack([train[number][0] for number in chosen]))
        rows = manifest.rows_of("train")
        names = np.concatenate([labels, [rows[number].class_name for number in chosen]])
    statistics = image_statistics(torch.cat(pixels))
    tested = len(labels)
    trained = slice(tested, None) if len(names) > tested else slice(None)
    groups, confirmed = _cluster(statistics, names, trained)
    if groups is None:
        return None, None, False
    contexts = np.array([f"context {group + 1}" for group in groups.tolist()])
    training = count_groups(names[tested:], contexts[tested:]) if len(names) > tested else None
    return contexts[:tested], training, confirmed


def _cluster(statistics: Tensor, names: Names, trained: slice) -> tuple[NDArray[np.intp] | None, bool]:
    """Find clusters that may be contexts, and whether they were confirmed.

    What a short training predicts or gets wrong is no help here: its errors are also those of hard images.
    """
    labels = np.unique(names, return_inverse=True)[1]
    for method in ("pooled", "within"):
        found = find_contexts(statistics, labels, method=method)
        if found.number > 1:
            return found.contexts, True
    found = find_contexts(statistics, labels, method="pooled", confirmation=0.0)
    stable = any(trial.stability >= STABLE for trial in found.tried)
    if found.number > 1 and stable and goes_together(count_groups(names[trained], found.contexts[trained])):
        return found.contexts, False
    return None, False
