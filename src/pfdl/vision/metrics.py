"""What a training logs: means over the batches of an epoch, and accuracies on the validation
images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.processes import gather_objects
from pfdl.contexts import group_accuracy, worst_group_accuracy
from pfdl.vision.config import ACCURACY, GROUP_AVERAGE, WORST_CLASS, WORST_GROUP


class RunningMeans:
    """Keep the mean of each named number over the samples seen so far; its state can be saved in
    between.

    Example:
        >>> import torch
        >>> means = RunningMeans()
        >>> means.add({"loss": torch.tensor(1.0)}, samples=3)
        >>> means.add({"loss": torch.tensor(5.0)}, samples=1)
        >>> means.compute()
        {'loss': 2.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self.samples: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor], samples: int) -> None:
        """Add the means of one batch, scalars; nothing waits for the device."""
        means = [value.detach().float() for value in values.values()]
        for name, mean in zip(values, means, strict=True):
            if name not in self._sums or self._sums[name].device != mean.device:
                self._sums[name] = self._sums.get(name, torch.zeros(())).to(mean.device)
        if means:
            # One kernel on a GPU
            torch._foreach_add_([self._sums[name] for name in values], means, alpha=samples)
        self.count(values, samples)

    def count(self, names: Iterable[str], samples: int) -> None:
        """Count the samples of a batch whose means the device has added."""
        for name in names:
            self.samples[name] = self.samples.get(name, 0) + samples

    def compute(self) -> dict[str, float]:
        """Return the means; of several processes that have as many samples, those over all of
        them.
        """
        own = {
            name: float(total) / self.samples[name]
            for name, total in self._sums.items()
            if self.samples[name]
        }
        everyone = gather_objects(own)
        means = {}
        for name in own:
            means[name] = sum(theirs[name] for theirs in everyone) / len(everyone)
        return means

    def reset(self) -> None:
        """Begin a new epoch; the sums stay where they are, and a recorded step adds to them."""
        for total in self._sums.values():
            total.zero_()
        self.samples = dict.fromkeys(self.samples, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return sums and numbers of samples, of tensors and plain values."""
        return {
            name: {"sum": total.cpu().clone(), "samples": self.samples[name]}
            for name, total in self._sums.items()
            if self.samples[name]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned; something else raises, and changes nothing."""
        sums = {name: torch.tensor(float(entry["sum"])) for name, entry in state.items()}
        self.samples = {name: int(entry["samples"]) for name, entry in state.items()}
        self._sums = sums


def judge(logits: Tensor, labels: Tensor, contexts: Tensor) -> Tensor:
    """Return of each image the prediction, the label, the context and the loss, shape (4, n)."""
    losses = F.cross_entropy(logits.float(), labels, reduction="none")
    return torch.stack([logits.argmax(1).float(), labels.float(), contexts.float(), losses])


def validation_metrics(judged: Tensor, images: int) -> dict[str, float]:
    """Return plain loss and accuracies on the validation images of all processes, whatever the
    objective.

    Accuracy of the worst group and the average over groups are there where all contexts are known.

    Args:
        judged: What :func:`judge` returns of the images of this process, contexts of −1 being
            unknown. The images are given to the processes in turns, and the first ones again to
            give all as many.
        images: How many there are.
    """
    judged = torch.stack(gather_objects(judged.cpu()), -1).flatten(-2)[:, :images]
    predictions, labels, contexts = judged[:3].long()
    losses = judged[3]
    metrics = {
        "val_loss": float(losses.mean()),
        ACCURACY: float((predictions == labels).float().mean()),
        WORST_CLASS: worst_group_accuracy(predictions, labels, torch.zeros_like(labels)),
    }
    if bool((contexts >= 0).all()):
        groups = group_accuracy(predictions, labels, contexts)
        metrics |= {
            WORST_GROUP: groups.worst_group.accuracy,
            GROUP_AVERAGE: groups.average_over_groups,
        }
    return metrics
