"""How good a trained classifier is: by group, class, context and ratio, and whether its confidence
is honest.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pfdl._internal.files import read_frame, read_json, write_json
from pfdl.contexts.groups import Accuracies, GroupAccuracy, count_groups, measure_accuracy
from pfdl.contexts.quality import measure_scores
from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import NO_CONTEXT, Manifest, ManifestRow
from pfdl.data.sources import ContextSource
from pfdl.data.splits import make_test_set
from pfdl.diagnosis import Gap
from pfdl.runs import CONFIG, METRICS, identify, read_run
from pfdl.vision.checkpoint import read_split
from pfdl.vision.config import ACCURACY, SELECTIONS, find_best_epoch
from pfdl.vision.embedding import inputs_of
from pfdl.vision.features import run_model

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel

EVALUATIONS = "evaluations"
"""Folder of a run in which its evaluations lie, one file each."""

OWN = "test"
"""Name of the evaluation on the test images of the run's own split."""

_SCORES = {
    "balanced_accuracy": "Balanced accuracy (mean over the classes)",
    "macro_f1": "Macro F1",
    "auroc": "Area under the ROC curve, mean over the classes",
    "worst_group_precision": "Worst {}'s precision",
}


@dataclass(frozen=True, kw_only=True)
class Evaluation(Accuracies):
    """Shares of test images that are recognised, from 0 to 1.

    Three averages are kept apart: ``overall`` counts every image equally, ``average_over_groups``
    counts every group (one class in one context) equally, and ``average_in_training_mixture``
    weights the groups as in the training set. Beside what follows it has all that
    :class:`pfdl.contexts.Accuracies` has.

    Args:
        name: What the evaluation is called.
        data_sha256: Hash of the test images and their labels: evaluations with the same hash can be
            compared.
        images: Number of test images.
        average_in_training_mixture: Accuracy to expect if the groups had the training set's
            proportions; None if a group of the training set is not among the test images.
        by_ratio: For each test set of a dominant ratio, in ascending order; empty if there are
            none.
        calibration_error: Expected calibration error: the mean distance of confidence and accuracy
            over 15 bins of confidence, weighted by their sizes.
        scores: Further scores by name: ``balanced_accuracy``, ``macro_f1``, ``auroc`` (if there are
            two classes) and ``worst_group_precision``, see :class:`pfdl.contexts.Scores`.
    """

    name: str
    data_sha256: str
    images: int
    average_in_training_mixture: float | None
    by_ratio: dict[str, float]
    calibration_error: float
    scores: dict[str, float] = field(default_factory=dict)


def evaluate(
    trained: TrainedModel,
    source: ContextSource,
    manifest: Manifest,
    *,
    set_name: str = "test",
    name: str = OWN,
    trained_on: Manifest | None = None,
    device: str = "cpu",
) -> Evaluation:
    """Test a trained model on a set of a manifest.

    Args:
        trained: The model.
        source: Where the images come from.
        manifest: Which image is in which set.
        set_name: One of ``manifest.set_names``.
        name: What the evaluation is called.
        trained_on: The split of the training, whose mixture of groups is reported on; by default
            ``manifest``.
        device: Where to compute.

    Returns:
        The accuracies.

    Raises:
        ValueError: If images are of classes that the model does not know, or images are missing.
    """
    check_classes(trained, manifest)
    inputs = inputs_of(trained.config, source)
    images = ContextImages(inputs, manifest, set_name, size=trained.config.image_size, cache=False)
    rows = manifest.rows_of(set_name)
    logits, _ = run_model(trained.model, images, device=device)
    numbers = torch.tensor([trained.config.classes.index(row.class_name) for row in rows])
    right = (logits.argmax(1) == numbers).numpy()
    labels, contexts = split_names(rows)
    accuracies = measure_accuracy(right, labels, contexts)
    mixture = accuracies.average_in(training_mixture(trained_on or manifest))
    scores = vars(measure_scores(logits.softmax(1), numbers, contexts))
    known = {key: score for key, score in scores.items() if not math.isnan(score)}
    by_ratio = {}
    for ratio_set in manifest.set_names:
        if ratio_set.startswith(f"{set_name}-"):
            is_in = [ratio_set in row.sets for row in rows]
            by_ratio[ratio_set.removeprefix("test-")] = float(right[is_in].mean())
    return Evaluation(
        **vars(accuracies),
        name=name,
        data_sha256=hash_images(rows),
        images=len(rows),
        average_in_training_mixture=None if math.isnan(mixture) else mixture,
        by_ratio=by_ratio,
        calibration_error=known.pop("calibration_error"),
        scores=known,
    )


def check_classes(trained: TrainedModel, manifest: Manifest) -> None:
    """Raise ValueError if images are of classes that a model does not know."""
    unknown = [name for name in manifest.classes if name not in trained.config.classes]
    if unknown:
        raise ValueError(
            f"the model knows the classes {', '.join(trained.config.classes)}, but the images are"
            f" of {', '.join(manifest.classes)}; give images of the classes that it was trained on."
        )


def split_names(rows: Sequence[ManifestRow]) -> tuple[Any, Any]:
    """Return the names of the classes and the contexts of images as arrays; None for the contexts
    if there are none.
    """
    labels = np.array([row.class_name for row in rows])
    contexts = np.array([row.context for row in rows])
    if not (contexts != "").any():
        return labels, None
    return labels, np.where(contexts == "", NO_CONTEXT, contexts)


def training_mixture(manifest: Manifest) -> dict[tuple[Any, Any], float]:
    """Count the training images of every group; empty if the manifest has no training set."""
    if "train" not in manifest.set_names:
        return {}
    return count_groups(*split_names(manifest.rows_of("train")))


def hash_images(rows: Sequence[ManifestRow]) -> str:
    """Return a hash of images with their labels, whatever their file names and order."""
    lines = sorted(
        f"{row.sha256} {row.class_name} {row.context} {' '.join(row.sets)}" for row in rows
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def find_test_set(own: Manifest, source: ContextSource) -> Manifest:
    """Choose the images of some data to test a model on; ValueError if nothing is left.

    Of the data that it was trained on, the test set of its own split; of other data its own test
    set or, where it has none, all images that were not trained on.
    """
    present = {(sample.path, sample.sha256) for sample in source.samples}
    tested = [(row.path, row.sha256) for row in own.rows if "test" in row.sets]
    return own if tested and present.issuperset(tested) else make_test_set(source, own)


def save_evaluation(folder: Path, evaluation: Evaluation) -> Path:
    """Write an evaluation into a run folder; a name that is taken by other images gets a part of
    the hash of these.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", evaluation.name).strip("-.")[:80] or "data"
    path = folder / EVALUATIONS / f"{name}.json"
    # There may be none, or a damaged one, which is replaced
    with suppress(OSError, KeyError, TypeError, ValueError):
        if read_json(path)["data_sha256"] != evaluation.data_sha256:
            path = path.with_stem(f"{name}-{evaluation.data_sha256[:8]}")
    # Without parents: a run folder that was deleted is not made again
    path.parent.mkdir(exist_ok=True)
    write_json(path, {**asdict(evaluation), "name": path.stem, "run": _owner(folder)})
    return path


def read_evaluations(
    folder: str | Path, problems: list[str] | None = None
) -> dict[str, Evaluation]:
    """Read all evaluations of a run. Tables may compare those of one ``data_sha256`` only.

    Args:
        folder: The run folder.
        problems: Where to add a sentence for a file that cannot be used; without it such a file is
            an error.

    Returns:
        The evaluations by name, that on the run's own test images first.

    Raises:
        ValueError: If a file is damaged.
    """
    evaluations: dict[str, Evaluation] = {}
    for path in sorted((Path(folder) / EVALUATIONS).glob("*.json")):
        try:
            evaluations[path.stem] = _read_evaluation(path)
        except (OSError, ValueError) as error:
            if problems is None:
                raise
            problems.append(f"{path} was left out: {' '.join(str(error).split())}")
    return dict(sorted(evaluations.items(), key=lambda item: (item[0] != OWN, item[0])))


def _owner(folder: Path) -> str | None:
    """Return what tells the run in a folder from others; None if there is no run."""
    return identify(folder) if (folder / CONFIG).exists() else None


def _read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation; ValueError if the file is damaged, for a page shows what is in it."""
    try:
        content = read_json(path)
        folder = path.parents[1]
        if content.pop("run", None) not in (None, _owner(folder)):
            raise ValueError(f"it is of a run with other settings than that in {folder}")
        worst = GroupAccuracy(**content["worst_group"])
        groups = tuple(GroupAccuracy(**group) for group in content["groups"])
        evaluation = Evaluation(**{**content, "worst_group": worst, "groups": groups})
        _check_evaluation(evaluation)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not an evaluation: {error}.") from error
    return evaluation


def _check_evaluation(evaluation: Evaluation) -> None:
    """Raise unless what is read from a file are shares and names."""
    shares = [
        evaluation.overall,
        evaluation.calibration_error,
        *evaluation.by_label.values(),
        *evaluation.by_context.values(),
        *evaluation.by_ratio.values(),
        *evaluation.scores.values(),
    ]
    words = [evaluation.name, evaluation.data_sha256]
    if evaluation.average_in_training_mixture is not None:
        shares.append(evaluation.average_in_training_mixture)
    for group in (evaluation.worst_group, *evaluation.groups):
        shares.append(group.accuracy)
        words += [group.label, group.context]
    are_shares = all(0 <= share <= 1 for share in shares)
    if not are_shares or not all(isinstance(word, str) for word in words):
        raise ValueError("a share in it is not a number from 0 to 1, or a name is not a text")


def read_kept_epoch(folder: Path, select: str) -> dict[str, float]:
    """Return what a training logged in the epoch whose weights it kept, by the ``select`` of its
    config.
    """
    logged = read_frame(folder / METRICS).astype(float)
    history = []
    for _, row in logged.iterrows():
        history.append({str(name): value for name, value in row.dropna().items()})
    best = find_best_epoch(history, SELECTIONS.get(select, ""))
    return history[-1 if best is None else best]


def measure_gap(folder: Path, accuracy: float, images: int) -> Gap | None:
    """Return how far a test accuracy lies below the validation accuracy that a run logged; None if
    it logged none.

    Args:
        folder: The run.
        accuracy: On test images.
        images: Number of test images.
    """
    try:
        kept = read_kept_epoch(folder, read_run(folder).settings["training"]["select"])
        own = read_split(folder)
        held_out = len(own.rows_of("validation"))
        drawn_from_training = own.parameters.get("protocol") != "own"
        in_mixture = kept[ACCURACY] if drawn_from_training else math.nan
        return Gap(kept[ACCURACY], held_out, accuracy, images, in_mixture)
    except (FileNotFoundError, IndexError, KeyError, TypeError, ValueError):
        return None


def describe_evaluation(evaluation: Evaluation) -> list[str]:
    """Say the averages in sentences that keep them apart."""
    worst = evaluation.worst_group
    one_of = "group" if evaluation.by_context else "class"
    sentences = [
        f"Accuracy on all {evaluation.images} images: {_percent(evaluation.overall)}.",
        f"Worst {one_of}: {worst.name}, {_percent(worst.accuracy)} of {worst.samples} images.",
    ]
    if evaluation.by_context:  # else the groups are the classes, which come below
        mixture = evaluation.average_in_training_mixture
        expected = "not known, as the two do not have the same groups"
        if mixture is not None:
            expected = _percent(mixture)
        sentences += [
            f"Average over the {len(evaluation.groups)} groups (a class in a context), each counted"
            f" equally: {_percent(evaluation.average_over_groups)}.",
            f"Average in the training set's mixture of groups: {expected}.",
        ]
    sentences.append(f"Expected calibration error: {evaluation.calibration_error:.3f}.")
    for key, title in _SCORES.items():
        if key in evaluation.scores:
            sentences.append(f"{title.format(one_of)}: {_percent(evaluation.scores[key])}.")
    return sentences


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
