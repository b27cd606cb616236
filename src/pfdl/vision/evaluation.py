"""How good a trained classifier is: by dominant ratio, class and context, and whether its confidence is honest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from pfdl.data.context_images import ContextImages
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.vision.checkpoint import TrainedModel
from pfdl.vision.pixels import normalise

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Group:
    """The images of one class in one context, and the share of them that is recognised."""

    class_name: str
    context: str
    accuracy: float
    images: int


@dataclass(frozen=True)
class Evaluation:
    """Shares of test images that are recognised, from 0 to 1.

    Args:
        by_ratio: For each test set of a dominant ratio, in ascending order; empty if the data has no contexts.
        overall: On the whole test side, from which also the following are.
        by_class: For each class.
        by_context: For each context.
        worst_group: The class and context with the lowest accuracy.
        calibration_error: Expected calibration error: the mean distance of confidence and accuracy over 15 bins of
            confidence, weighted by their sizes.
        images: Number of images of the whole test side.
    """

    by_ratio: dict[str, float]
    overall: float
    by_class: dict[str, float]
    by_context: dict[str, float]
    worst_group: Group
    calibration_error: float
    images: int

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return asdict(self)


def evaluate(
    trained: TrainedModel, source: ContextSource, manifest: Manifest, *, device: str = "cpu", batch_size: int = 256
) -> Evaluation:
    """Test a trained model on the test sets of a manifest.

    Args:
        trained: The model.
        source: Where the images come from.
        manifest: Which image is in which set.
        device: Where to compute.
        batch_size: Images at a time.

    Returns:
        The accuracies.

    Raises:
        ValueError: If the classes are not those of the model, or images are missing.
    """
    if manifest.classes != trained.config.classes:
        raise ValueError(
            f"the model knows the classes {', '.join(trained.config.classes)}, but the images are of "
            f"{', '.join(manifest.classes)}; evaluate it on the classes that it was trained on."
        )
    images = ContextImages(source, manifest, "test", size=trained.config.image_size, cache=False)
    probabilities = predict(trained.model, images, device=device, batch_size=batch_size).softmax(1)
    right = probabilities.argmax(1) == images.labels
    rows = manifest.rows_of("test")
    by_ratio = {
        name.removeprefix("test-"): _share(right, [name in row.sets for row in rows])
        for name in manifest.set_names
        if name.startswith("test-")
    }
    groups: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row, hit in zip(rows, right.tolist(), strict=True):
        groups[row.class_name, row.context].append(hit)
    return Evaluation(
        by_ratio=by_ratio,
        overall=_share(right, [True] * len(rows)),
        by_class={name: _share(right, [row.class_name == name for row in rows]) for name in _names(rows, 1)},
        by_context={name: _share(right, [row.context == name for row in rows]) for name in _names(rows, 2) if name},
        worst_group=min(
            (Group(*names, sum(hits) / len(hits), len(hits)) for names, hits in sorted(groups.items())),
            key=lambda group: group.accuracy,
        ),
        calibration_error=expected_calibration_error(probabilities, images.labels),
        images=len(rows),
    )


@torch.no_grad()
def predict(model: nn.Module, images: ContextImages, *, device: str = "cpu", batch_size: int = 256) -> Tensor:
    """The logits of a set of images, in its order, on the CPU."""
    model = model.to(device).eval()
    return torch.cat([model(normalise(batch.to(device))).float().cpu() for batch, *_ in DataLoader(images, batch_size)])


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS) -> float:
    """The expected calibration error (Guo et al., 2017).

    Args:
        probabilities: Shape (n, classes).
        labels: Shape (n,).
        bins: Number of bins of equal width.

    Returns:
        The mean of |confidence − accuracy| over the bins, weighted by the number of samples in each.

    Example:
        >>> import torch
        >>> round(expected_calibration_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])), 6)
        0.4
    """
    confidence, predicted = probabilities.max(1)
    right = (predicted == labels).to(confidence.dtype)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = torch.zeros(bins, dtype=confidence.dtype).index_add_(0, index, confidence - right)
    return float(gaps.abs().sum() / len(labels))


def _share(right: Tensor, chosen: Sequence[bool]) -> float:
    return int((right & torch.tensor(chosen)).sum()) / sum(chosen)


def _names(rows: Sequence[tuple[Any, ...]], column: int) -> list[str]:
    return sorted({row[column] for row in rows})
