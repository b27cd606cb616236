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
        self._names: tuple[str, ...] = ()
        self._together = torch.empty(0)  # the sums of those names, as one tensor: one addition for each batch

    def add(self, values: Mapping[str, Tensor], samples: int) -> None:
        """Add the means of one batch, scalars; nothing waits for the device."""
        if not values:
            return
        device = next(iter(values.values())).device
        means = torch.stack([value.detach().to(device, torch.float32) for value in values.values()])
        if self._names != tuple(values) or self._together.device != device:
            self._part()
            zero = means.new_zeros(())
            self._together = torch.stack([self._sums.get(name, zero).to(device) for name in values])
            self._names = tuple(values)
        self._together.add_(means, alpha=samples)
        for name in self._names:
            self._samples[name] = self._samples.get(name, 0) + samples

    def _part(self) -> None:
        """Write the sums that are one tensor back to where each has its name."""
        self._sums.update(zip(self._names, self._together.clone(), strict=True))

    def compute(self) -> dict[str, Tensor]:
        """Return the means."""
        self._part()
        return {name: total / self._samples[name] for name, total in self._sums.items()}

    def reset(self) -> None:
        """Forget everything, for a new epoch."""
        self._sums, self._samples, self._names, self._together = {}, {}, (), torch.empty(0)

    def state_dict(self) -> dict[str, Any]:
        """Return sums and numbers of samples, of tensors and plain values."""
        self._part()
        return {name: {"sum": total.cpu(), "samples": self._samples[name]} for name, total in self._sums.items()}

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
            sums[str(name)], samples[str(name)] = total.detach().float(), count
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
