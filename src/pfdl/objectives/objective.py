"""What is minimised: the risk under a weighting of the samples plus a sum of penalties."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from pfdl._internal.loading import AtomicModule
from pfdl._internal.processes import gather_numbers, rank, world_size
from pfdl.decorrelation.distributed import Batch, gather_rows, join_batches
from pfdl.objectives.base import Weighting
from pfdl.objectives.risks import sample_risks
from pfdl.objectives.weightings.uniform import Uniform
from pfdl.parts import Part

Tensors = dict[str, Tensor | None]


class _Counts(NamedTuple):
    """What a process tells the others: its samples, its rows of features, a number to draw from."""

    rows: int
    rows_of_features: int
    seed: int


class Objective(AtomicModule):
    """Risk under a weighting plus penalties, as one scalar to minimise.

    ERM is ``Objective()``, PFDL is ``Objective([PartialDecorrelation(p)])``, IRM + PFDL has both
    penalties in the list. Each part gets those tensors of the batch that it ``needs``.

    If a penalty asks for it by its method ``divisor``, everything is divided by its weight,
    as in the published code of IRM: otherwise the gradient would jump when a large weight takes
    effect.

    While training under ``torch.distributed`` the loss and its gradient are those of the union of
    all processes' batches, whatever the parts; all processes must make the same calls.

    Args:
        penalties: What is added to the risk; each penalty carries its own weight.
        weighting: How much each sample counts in the risk; all the same by default.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.

    Raises:
        TypeError: If a penalty is none.
        ValueError: If the label smoothing is out of its range.

    Example:
        >>> import torch, pfdl
        >>> objective = Objective([pfdl.PartialDecorrelation(num_features=4, hidden=8)])
        >>> features, head = torch.randn(16, 4), torch.nn.Linear(4, 3)
        >>> objective(head(features), torch.arange(16) % 3, features=features).shape
        torch.Size([])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        penalties: Iterable[nn.Module] = (),
        weighting: Weighting | None = None,
        *,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"label_smoothing is {label_smoothing}; give a number from 0 to below 1."
            )
        self.label_smoothing = label_smoothing
        self.penalties = nn.ModuleList(penalties)
        self.weighting = weighting or Uniform()
        for penalty in self.penalties:
            if not isinstance(penalty, Part):
                raise TypeError(
                    f"{type(penalty).__name__} is no penalty; derive it from"
                    " pfdl.objectives.penalties.Penalty."
                )

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        features: Tensor | None = None,
        environments: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of one batch.

        Args:
            logits: Shape (n,), (n, 1) or (n, classes).
            labels: Shape (n,).
            features: The embedding that enters the last layer, shape (n, p), or a sample of its
                rows; required if a part of the objective needs it.
            environments: The number of each sample's environment or context, shape (n,); required
                if a part of the objective needs it.
            indices: The number of each sample in the training set, shape (n,); required if a part
                of the objective keeps something for every training sample, as
                :class:`pfdl.objectives.weightings.DWR` does.

        Returns:
            A scalar.

        Raises:
            ValueError: If something that a part needs was not given, or a part cannot use it. That
                part has not changed then; those before it may have learnt from the batch.
        """
        divisor = self.divisor()  # before the penalties count this call
        batch: Tensors = {
            "logits": logits,
            "labels": labels,
            "features": features,
            "environments": environments,
            "indices": indices,
        }
        if self.training and world_size() > 1:
            risk, penalties = self._of_all_processes(batch)
        else:
            risk, penalties = self._of_this_process(batch)
        loss = risk
        for penalty in penalties:
            loss = loss + penalty
        return loss / divisor

    def _of_this_process(self, batch: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Return the weighted risk of a batch and its penalties."""
        risks = self._complete(batch)
        if not len(risks):
            raise ValueError("the batch has no samples; give at least one.")
        weights, penalties = self._call_parts(batch, batch)
        return (weights * risks).mean(), penalties

    def _of_all_processes(self, batch: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Return the weighted risk of the batches of all processes, and their penalties.

        Few parts of an objective are a mean over samples, so their average over processes is not
        their value on all samples. So every process gets the rows of all, and computes the same
        from them.
        """
        counts = self._join(batch)
        everywhere = self._gather(batch, counts)
        risks = cast(Tensor, batch["risks"])
        with _same_draws(counts[0].seed, risks.device):
            weights, penalties = self._call_parts(batch, everywhere)
        rows = [process.rows for process in counts]
        own_weights = torch.split(weights, rows)[rank()]
        return Batch(sum(rows), len(rows)).mean(own_weights * risks), penalties

    def _join(self, batch: Tensors) -> list[_Counts]:
        """Complete the batch of this process; go on, or stop, together with all others."""
        rows = 0
        problem = None
        try:
            rows = len(self._complete(batch))
        except Exception as error:
            problem = error  # a process that raised alone would leave the others waiting for it
        join_batches(rows, problem, least=1)
        features = batch["features"]  # which may be those of some samples only
        rows_of_features = len(features) if isinstance(features, Tensor) and features.ndim else 0
        everyone = gather_numbers(rows, rows_of_features, int(torch.randint(2**31, ())))
        return [_Counts(*numbers) for numbers in everyone]

    def _gather(self, batch: Tensors, counts: list[_Counts]) -> Tensors:
        """Return the tensors of all processes that parts need, whose gradients reach the rows of
        this one.
        """
        wanted = _needed_by(part for part in self._parts() if not part.sums_over_processes)
        everywhere: Tensors = {}
        for name, tensor in batch.items():
            if tensor is None or name not in wanted:
                continue
            if name == "features":
                rows = [process.rows_of_features for process in counts]
            else:
                rows = [process.rows for process in counts]
            everywhere[name] = gather_rows(tensor, rows)
        return everywhere

    def _call_parts(self, here: Tensors, everywhere: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Return the weights of all samples and the penalties; ``here`` is what this process has of
        them.
        """

        def needed(part: Part) -> list[Tensor]:
            tensors = here if part.sums_over_processes else everywhere
            return [cast(Tensor, tensors[name]) for name in part.needs]

        weights = self.weighting(*(tensor.detach() for tensor in needed(self.weighting)))
        penalties = [penalty(*needed(penalty)) for penalty in self._penalties()]
        return weights, penalties

    def _complete(self, batch: Tensors) -> Tensor:
        """Add the risks to a batch, raise unless it has what all parts need, and return the
        risks.
        """
        logits = cast(Tensor, batch["logits"])
        labels = cast(Tensor, batch["labels"])
        risks = sample_risks(logits, labels, self.label_smoothing)
        batch["risks"] = risks
        for part in self._parts():
            for name in part.needs:
                if batch[name] is None:
                    raise ValueError(
                        f"{type(part).__name__} needs {name}; pass {name}=... to the objective."
                    )
        return risks

    def prepare(self, labels: Tensor, contexts: Tensor) -> None:
        """Show the parts that read contexts the labels and contexts of all training samples, shape
        (n,) each, before the first batch.
        """
        for part in self._parts():
            if "environments" in part.needs:
                part.prepare(labels, contexts)

    def recording_key(self) -> Hashable | None:
        """Return what a recording of the next call would fix; None if it cannot be recorded."""
        is_ours = type(self).forward is Objective.forward and not self._forward_pre_hooks
        keys = tuple(part.recording_key() for part in self._parts())
        if not is_ours or world_size() > 1 or None in keys:
            return None
        return (self.label_smoothing, self.divisor(), self.training, keys)

    def note_replay(self) -> None:
        """Let every part count a call that was replayed from a recording."""
        for part in self._parts():
            part.note_replay()

    def divisor(self) -> float:
        """Return what the next call divides its loss by, risk and penalties alike: 1, or the
        largest weight that a penalty asks for.

        Divide what you add to the loss yourself, such as a regulariser, by it, too.
        """
        return max([1.0, *(penalty.divisor() for penalty in self._penalties())])

    def metrics(self) -> dict[str, Tensor]:
        """Return what the parts of this objective would log of the last call, by name."""
        metrics: dict[str, Tensor] = {}
        for part in self._parts():
            metrics.update(part.metrics())
        return metrics

    @property
    def needs(self) -> set[str]:
        """Return all that the parts of this objective read."""
        return _needed_by(self._parts()) - {"risks"}

    @property
    def needs_contexts(self) -> bool:
        """Return whether some part reads the environment or context of each sample."""
        return "environments" in self.needs

    def _penalties(self) -> list[Part]:
        return [cast(Part, penalty) for penalty in self.penalties]

    def _parts(self) -> list[Part]:
        return [self.weighting, *self._penalties()]


def _needed_by(parts: Iterable[Part]) -> set[str]:
    return set[str]().union(*(part.needs for part in parts))


@contextmanager
def _same_draws(seed: int, device: torch.device) -> Iterator[None]:
    """Let all processes draw the same random numbers, and leave their own sequences as they
    were.
    """
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        # torch.manual_seed would visit every kind of device
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
