"""What a training logs: means over the batches of an epoch, and which accuracy chooses the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data.distributed import DistributedSampler

from pfdl._internal.processes import gather_objects, world_size

ACCURACY, WORST_CLASS, WORST_GROUP = "val_accuracy", "val_worst_class", "val_worst_group"
GROUP_AVERAGE = "val_average_over_groups"
SELECTIONS = {"accuracy": ACCURACY, "worst-class": WORST_CLASS, "worst-group": WORST_GROUP}
"""What can decide which epoch is kept, and the name under which it is logged."""

TIE_BREAKERS = {WORST_CLASS: ACCURACY, WORST_GROUP: GROUP_AVERAGE}
"""What decides between epochs that are equal in that: the worst of small groups is often at 0 in every epoch."""


class RunningMeans:
    """Keep the mean of each named number over the samples seen so far; its state can be saved in between.

    Example:
        >>> import torch
        >>> means = RunningMeans()
        >>> means.add({"loss": torch.tensor(1.0)}, samples=3)
        >>> means.add({"loss": torch.tensor(5.0)}, samples=1)
        >>> means.compute()
        {'loss': tensor(2.)}
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._samples: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor], samples: int) -> None:
        """Add the means of one batch, scalars; nothing waits for the device."""
        means = [value.detach().float() for value in values.values()]
        for name, mean in zip(values, means, strict=True):
            if name not in self._sums or self._sums[name].device != mean.device:
                self._sums[name] = self._sums.get(name, torch.zeros(())).to(mean.device)
            self._samples[name] = self._samples.get(name, 0) + samples
        if means:
            torch._foreach_add_([self._sums[name] for name in values], means, alpha=samples)  # one kernel on a GPU

    def compute(self) -> dict[str, Tensor]:
        """Return the means."""
        return {name: total / self._samples[name] for name, total in self._sums.items()}

    def reset(self) -> None:
        """Forget everything, for a new epoch."""
        self._sums, self._samples = {}, {}

    def state_dict(self) -> dict[str, Any]:
        """Return sums and numbers of samples, of tensors and plain values."""
        return {
            name: {"sum": total.cpu().clone(), "samples": self._samples[name]} for name, total in self._sums.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned.

        Raises:
            ValueError: If it is something else; nothing changes then.
        """
        sums: dict[str, Tensor] = {}
        samples: dict[str, int] = {}
        for name, entry in state.items():
            total = entry.get("sum") if isinstance(entry, Mapping) else None
            count = entry.get("samples") if isinstance(entry, Mapping) else None
            if not isinstance(total, Tensor) or total.shape != () or type(count) is not int or count < 1:
                raise ValueError(f"the running mean of {name!r} is not a sum and a number of samples.")
            sums[str(name)], samples[str(name)] = total.detach().float().clone(), count
        self.reset()
        self._sums, self._samples = sums, samples


def of_all_processes(mine: Tensor, loader: object) -> Tensor:
    """Return what all processes have of each image, without the images that a sampler repeats to give all as many.

    Args:
        mine: What this process has, one column per image of its loader.
        loader: The loader, which may have PyTorch's sampler for processes.

    Returns:
        One column per image of all processes, on the CPU if there are several.
    """
    if world_size() == 1:
        return mine
    parts = gather_objects(mine.cpu())
    sampler = getattr(loader, "sampler", None)
    if not isinstance(sampler, DistributedSampler) or len({part.shape for part in parts}) > 1:
        return torch.cat(parts, -1)
    in_order = torch.stack(parts, -1).flatten(-2)  # such a sampler gives images to processes in turns
    return in_order[..., : len(sampler.dataset)]  # type: ignore[arg-type]
