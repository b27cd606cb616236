"""What is trained on: the risk under a weighting of the samples plus a sum of penalties; names for the usual ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from pfdl.objectives.penalties import CORAL, IRM, PartialDecorrelation, Penalty, Quantization, VREx
from pfdl.objectives.penalties.environments import EnvironmentPenalty
from pfdl.objectives.risk import sample_risks
from pfdl.objectives.weightings import (
    CNBB,
    DWR,
    Balance,
    GroupDRO,
    Product,
    SceneBalance,
    StableNet,
    Uniform,
    Weighting,
)


class Objective(nn.Module):
    """Risk under a weighting plus penalties, as one scalar to minimise.

    ERM is ``Objective()``, the PFDL paper's is ``Objective([PartialDecorrelation(p)])``, IRM with it has both penalties
    in the list. A penalty gets those tensors of the batch that it ``needs``.

    If a penalty between environments has a weight above 1, everything is divided by it, as in the published code of
    IRM: otherwise the gradient would jump by that factor when the weight takes effect. See :meth:`divisor`.

    Args:
        penalties: What is added to the risk; each penalty carries its own weight.
        weighting: How much each sample counts in the risk; all the same by default.

    Example:
        >>> import torch, pfdl
        >>> objective = Objective([pfdl.PartialDecorrelation(num_features=4, hidden=8)])
        >>> features, head = torch.randn(16, 4), torch.nn.Linear(4, 3)
        >>> objective(head(features), torch.arange(16) % 3, features=features).shape
        torch.Size([])
    """

    def __init__(self, penalties: Iterable[Penalty] = (), weighting: Weighting | None = None) -> None:
        super().__init__()
        self.penalties = nn.ModuleList(penalties)
        self.weighting = weighting or Uniform()

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        features: Tensor | None = None,
        environments: Tensor | None = None,
    ) -> Tensor:
        """The loss of one batch.

        Args:
            logits: Shape (n,), (n, 1) or (n, classes).
            labels: Shape (n,).
            features: The embedding that enters the last layer, shape (n, p), or a sample of its rows; required if a
                part of the objective needs it.
            environments: Which environment each sample comes from, shape (n,); likewise.

        Returns:
            A scalar.

        Raises:
            ValueError: If something that a part needs was not given.
        """
        divisor = self.divisor()
        risks = sample_risks(logits, labels)
        batch = {
            "risks": risks,
            "features": features,
            "logits": logits,
            "labels": labels,
            "environments": environments,
        }
        weights: Tensor = self.weighting(*(tensor.detach() for tensor in _needed(self.weighting, batch)))
        loss: Tensor = (weights * risks).mean()
        for penalty in self._penalties():
            loss = loss + penalty(*_needed(penalty, batch))
        return loss / divisor

    def divisor(self) -> float:
        """What the next call divides its loss by; a regulariser added outside goes with it if divided likewise."""
        between = [penalty for penalty in self._penalties() if isinstance(penalty, EnvironmentPenalty)]
        return max([1.0, *(penalty.current_weight() for penalty in between)])

    @property
    def infers_contexts(self) -> bool:
        """Whether the environments are to be found by :func:`pfdl.infer_contexts`, for all parts."""
        return self.weighting.infers_contexts

    @property
    def needs(self) -> set[str]:
        """All that the parts of this objective read."""
        parts: list[Part] = [self.weighting, *self._penalties()]
        return {name for part in parts for name in part.needs} - {"risks"}

    def _penalties(self) -> list[Penalty]:
        return [penalty for penalty in self.penalties if isinstance(penalty, Penalty)]


Part = Penalty | Weighting
Recipe = Callable[..., tuple[Part, ...]]

PUBLISHED: dict[str, Any] = {"weight": 1.0, "sharing": "strict", "form": "paper", "center": "none", "fit_steps": 1}
"""PFDL as the paper has it."""

RECIPES: dict[str, Recipe] = {
    "balance": lambda num_features, **settings: (Balance(**settings),),
    "cnbb": lambda num_features, **settings: (CNBB(**settings), Quantization()),
    "coral": lambda num_features, **settings: (CORAL(**settings),),
    "dwr": lambda num_features, **settings: (DWR(**settings),),
    "erm": lambda num_features: (),
    "groupdro": lambda num_features, **settings: (GroupDRO(**settings),),
    "irm": lambda num_features, **settings: (IRM(**settings),),
    "pfdl": lambda num_features, **settings: (SceneBalance(**settings),),
    "pfdl-paper": lambda num_features, **settings: (PartialDecorrelation(num_features, **PUBLISHED | settings),),
    "stablenet": lambda num_features, **settings: (StableNet(**settings),),
    "vrex": lambda num_features, **settings: (VREx(**settings),),
}
"""From a name to the penalties and weightings it stands for, given the width of the embedding."""


def make_objective(name: str, num_features: int, **settings: Mapping[str, Any]) -> Objective:
    """Build an objective by name.

    Args:
        name: One of the names in ``RECIPES``, or several joined by ``+``, such as ``"irm+pfdl"``: penalties are
            added, weightings multiplied. ``"pfdl"`` balances scenes against classes, ``"pfdl-paper"`` is the penalty
            as it was published.
        num_features: p, the width of the embedding.
        **settings: For each part of the name that shall not have its defaults, a mapping of its arguments:
            ``irm={"weight": 1e4, "anneal": 200}``.

    Returns:
        A new objective.

    Raises:
        ValueError: If a name is unknown or given twice, or if settings are given for a part that the name does not
            have.

    Example:
        >>> make_objective("irm+pfdl-paper", num_features=8, irm={"weight": 100.0}).needs == {
        ...     "features", "logits", "labels", "environments"}
        True
    """
    names = name.split("+")
    for part in names:
        if part not in RECIPES:
            raise ValueError(
                f"{part!r} in the objective {name!r} is unknown; choose from {', '.join(sorted(RECIPES))}, "
                "or join several with '+'."
            )
    if len(set(names)) < len(names):
        raise ValueError(f"the objective {name!r} names a part twice; give each once.")
    if unused := set(settings) - set(names):
        raise ValueError(f"settings for {', '.join(sorted(unused))} were given but the objective is {name!r}.")
    parts = [part for key in names for part in RECIPES[key](num_features, **settings.get(key, {}))]
    weightings = [part for part in parts if isinstance(part, Weighting)]
    weighting = Product(weightings) if len(weightings) > 1 else next(iter(weightings), None)
    return Objective((part for part in parts if isinstance(part, Penalty)), weighting)


def _needed(part: Part, batch: Mapping[str, Tensor | None]) -> list[Tensor]:
    """Those tensors of the batch that a penalty or weighting reads."""
    tensors = []
    for name in part.needs:
        tensor = batch[name]
        if tensor is None:
            raise ValueError(f"{type(part).__name__} needs {name}; pass {name}=... to the objective.")
        tensors.append(tensor)
    return tensors
