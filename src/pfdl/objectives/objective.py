"""What is minimised: the risk under a weighting of the samples plus a sum of penalties."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn

from pfdl._internal.modules import AtomicModule
from pfdl._internal.processes import world_size
from pfdl.decorrelation import PartialDecorrelation
from pfdl.decorrelation.distributed import Announcement, Meeting, meet
from pfdl.objectives.base import Part
from pfdl.objectives.risk import sample_risks
from pfdl.objectives.union import Tensors, Union
from pfdl.objectives.weightings import Uniform, Weighting


class Objective(AtomicModule):
    """Risk under a weighting plus penalties, as one scalar to minimise.

    ERM is ``Objective()``, PFDL is ``Objective([PartialDecorrelation(p)])``, IRM + PFDL has both penalties in the list.
    Each part gets those tensors of the batch that it ``needs``.

    If a penalty asks for it (:meth:`pfdl.objectives.penalties.Penalty.divisor`), everything is divided by its weight,
    as in the published code of IRM: otherwise the gradient would jump when a large weight takes effect.

    Under ``torch.distributed`` the loss and its gradient are those of the union of all processes' batches, whatever
    the parts (``docs/distributed.md``).

    Args:
        penalties: What is added to the risk; each penalty carries its own weight.
        weighting: How much each sample counts in the risk; all the same by default.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training. All processes
            must then make the same calls.

    Raises:
        TypeError: If a penalty does not say what it ``needs``.
        ValueError: If the label smoothing is out of its range.

    Example:
        >>> import torch, pfdl
        >>> objective = Objective([pfdl.PartialDecorrelation(num_features=4, hidden=8)])
        >>> features, head = torch.randn(16, 4), torch.nn.Linear(4, 3)
        >>> objective(head(features), torch.arange(16) % 3, features=features).shape
        torch.Size([])
    """

    def __init__(
        self,
        penalties: Iterable[nn.Module] = (),
        weighting: Weighting | None = None,
        *,
        label_smoothing: float = 0.0,
        synchronize: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give a number from 0 to below 1.")
        self.label_smoothing = label_smoothing
        self.synchronize = synchronize
        self.penalties = nn.ModuleList(penalties)
        self.weighting = weighting or Uniform()
        for penalty in self.penalties:
            if not hasattr(penalty, "needs"):
                raise TypeError(
                    f"{type(penalty).__name__} is no penalty: it has no attribute 'needs'; derive it from "
                    "pfdl.objectives.penalties.Penalty."
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
            features: The embedding that enters the last layer, shape (n, p), or a sample of its rows; required if a
                part of the objective needs it.
            environments: The number of each sample's environment or context, shape (n,); required if a part of the
                objective needs it.
            indices: The number of each sample in the training set, shape (n,); required if a part of the objective
                keeps something for every training sample, as :class:`pfdl.objectives.weightings.DWR` does.

        Returns:
            A scalar.

        Raises:
            ValueError: If something that a part needs was not given, or a part cannot use it. No part has changed then.
        """
        divisor = self.divisor()
        batch: dict[str, Tensor | None] = {
            "logits": logits,
            "labels": labels,
            "features": features,
            "environments": environments,
            "indices": indices,
        }
        union, meetings = self._join(batch)
        with union.same_draws():
            weights, *penalties = self._call_parts(union, meetings)
        loss = union.mean(union.own(weights) * cast(Tensor, union.here["risks"]))
        for penalty in penalties:
            loss = loss + penalty
        return loss / divisor

    def _join(self, batch: dict[str, Tensor | None]) -> tuple[Union, dict[int, Meeting]]:
        """Add the risks to a batch and join it with those of the other processes, after a look at all of them.

        The processes meet once: what parts that join them themselves would say is said here. Those get their meeting,
        by the place of the part.
        """
        parts: list[Part] = [self.weighting, *self._penalties()]
        if not (self.synchronize and self.training and world_size() > 1):
            self._complete(batch, parts)
            return Union(batch, (), None), {}
        rows, problem, signature = 0, None, ""
        announced: dict[int, Announcement] = {}
        try:
            rows = self._complete(batch, parts)
            announced = _announcements(parts, batch)
            problem = next((each.problem for each in announced.values() if each.problem is not None), None)
            signature = _signature(parts, batch, announced.values())
        except Exception as error:
            problem = error
        features = batch["features"]
        rows_of_features = len(features) if isinstance(features, Tensor) and features.ndim else 0
        flags = sum(each.flag << place for place, each in announced.items())  # one number, however many parts
        meeting = meet(rows, problem, signature, int(torch.randint(2**31, ())), rows_of_features, flags)
        meeting.batch()  # raises if no process has a sample
        meetings = {
            place: Meeting(meeting.numbers[1], [[theirs >> place & 1 for theirs in meeting.numbers[2]]])
            for place in announced
        }
        wanted = {name for part in parts if not _joins_itself(part) for name in part.needs}
        return Union(batch, wanted, meeting), meetings

    def _complete(self, batch: dict[str, Tensor | None], parts: Iterable[Part]) -> int:
        """Add the risks to a batch, raise unless it has what all parts need, and return the number of its samples."""
        logits, labels = cast(tuple[Tensor, Tensor], (batch["logits"], batch["labels"]))
        batch["risks"] = sample_risks(logits, labels, self.label_smoothing)
        for part in parts:
            for name in part.needs:
                if batch[name] is None:
                    raise ValueError(f"{type(part).__name__} needs {name}; pass {name}=... to the objective.")
        return len(labels)

    def _call_parts(self, union: Union, meetings: Mapping[int, Meeting]) -> list[Tensor]:
        """Return the weights and each penalty; if a part raises, all of them are as they were.

        A part that raises has changed nothing of its own. What was called before it is put back from a copy; the part
        with the most parameters, such as g of PFDL, is called last, so that it is never copied.
        """
        parts: list[Part] = [self.weighting, *self._penalties()]
        needed = [_needed(part, union) for part in parts]
        needed[0] = [tensor.detach() for tensor in needed[0]]
        order = sorted(range(len(parts)), key=lambda place: _num_parameters(parts[place]))
        found: dict[int, Tensor] = {}
        copies: list[tuple[nn.Module, Mapping[str, Any]]] = []
        try:
            for place in order:
                part = parts[place]
                if self.training and place != order[-1] and _has_state(part):
                    copies.append((part, copy.deepcopy(part.state_dict())))
                told = {"meeting": meetings[place]} if place in meetings else {}
                found[place] = cast(nn.Module, part)(*needed[place], **told)
        except BaseException:
            for module, state in copies:
                module.load_state_dict(state)
            raise
        return [found[place] for place in range(len(parts))]

    def divisor(self) -> float:
        """Return what the next call divides its loss by; divide a regulariser that is added outside by it, too."""
        return max([1.0, *(penalty.divisor() for penalty in self._penalties())])

    def metrics(self) -> dict[str, Tensor]:
        """Return what the parts of this objective would log of the last call, by name."""
        parts: list[Part] = [self.weighting, *self._penalties()]
        return {name: value for part in parts for name, value in part.metrics().items()}

    def probe(self, features: Tensor) -> dict[str, Tensor]:
        """Return what is worth logging and too dear for every step: the shares of PFDL's gradient in its two parts.

        Args:
            features: The embedding, shape (n, p). Nothing is updated; all processes must call alike.
        """
        shares: dict[str, Tensor] = {}
        for penalty in self.penalties:
            if isinstance(penalty, PartialDecorrelation) and penalty.form == "paper":
                shares |= penalty.gradient_parts(features).shares()
        return shares

    @property
    def needs(self) -> set[str]:
        """Return all that the parts of this objective read."""
        parts: list[Part] = [self.weighting, *self._penalties()]
        return {name for part in parts for name in part.needs} - {"risks"}

    @property
    def needs_contexts(self) -> bool:
        """Return whether some part reads the environment or context of each sample."""
        return "environments" in self.needs

    def _penalties(self) -> list[Part]:
        return [cast(Part, penalty) for penalty in self.penalties]


def _num_parameters(part: Part) -> int:
    return sum(parameter.numel() for parameter in part.parameters()) if isinstance(part, nn.Module) else 0


def _has_state(part: Part) -> TypeGuard[nn.Module]:
    if not isinstance(part, nn.Module):
        return False
    kinds = {type(module) for module in part.modules()}
    extra = any(kind.get_extra_state is not nn.Module.get_extra_state for kind in kinds)
    return extra or any(True for _ in part.parameters()) or any(True for _ in part.buffers())


def _joins_itself(part: Part) -> bool:
    """Return whether a part sums over processes itself, which it says by having a switch for it."""
    return hasattr(part, "synchronize")


def _needed(part: Part, union: Union) -> list[Tensor]:
    """Return the tensors that a penalty or weighting reads."""
    tensors = union.here if _joins_itself(part) else union.everywhere
    return [cast(Tensor, tensors[name]) for name in part.needs]


@cache
def _setting_names(kind: type) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def _announcements(parts: Iterable[Part], batch: Tensors) -> dict[int, Announcement]:
    """Return what the parts that join the processes themselves have to tell, by the place of the part."""
    found = {}
    for place, part in enumerate(parts):
        announce = getattr(part, "announce", None)  # a part may also meet the other processes by itself
        said = None if announce is None else announce(*(batch[name] for name in part.needs))
        if said is not None:
            found[place] = said
    return found


def _signature(parts: Iterable[Part], batch: Tensors, announced: Iterable[Announcement]) -> str:
    """Say what must be the same in all processes; a part that joins them itself has announced its own settings."""
    settings = {
        type(part).__name__: {
            name: getattr(part, name)
            for name in _setting_names(type(part))
            if isinstance(getattr(part, name, None), (int, float, str))
        }
        for part in parts
        if not _joins_itself(part)
    }
    forms = {name: f"{one.dtype} {tuple(one.shape[1:])}" for name, one in batch.items() if one is not None}
    others = "".join(f" and {each.signature}" for each in announced)
    return f"the parts {settings}{others} and the tensors {forms}"
