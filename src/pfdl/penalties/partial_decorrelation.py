"""Partial Feature Decorrelation Learning as one term in a loss."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pfdl._validation import check_choice, check_count, check_features, check_finite
from pfdl.decomposition import FeatureDecomposition
from pfdl.functional import CENTERINGS, FORMS, decorrelation_loss
from pfdl.penalties.base import Penalty

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
Schedule = Callable[[int], float]
Method = TypeVar("Method", bound=Callable[..., Tensor])


def _outside_compiled_graphs(method: Method) -> Method:
    """Keep a method that owns an optimiser out of graphs that ``torch.compile`` builds around it."""
    return cast(Method, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


@dataclass
class Diagnostics:
    """What the last call saw, as tensors on the device: reading a number is what waits for the device.

    Attributes:
        decomposition_loss: L_g of the last g-step, before its update.
        decorrelation_loss: L_decorr, without its weight.
        weight: What L_decorr was multiplied by.
    """

    decomposition_loss: Tensor | None = None
    decorrelation_loss: Tensor | None = None
    weight: float | None = None
    _unexplained: Tensor | None = None
    _variance: Tensor | None = None

    @property
    def r2(self) -> Tensor | None:
        """R² of g for each feature on the last batch it was fitted to, before the update.

        1: wholly predictable from the others, 0: no better than its mean. NaN for a feature that was constant.
        """
        if self._unexplained is None or self._variance is None:
            return None
        return torch.where(self._variance > 0, 1 - self._unexplained / self._variance, torch.nan)

    def summary(self) -> dict[str, float]:
        """The numbers worth logging."""
        r2 = self.r2
        numbers = {
            "decomposition_loss": self.decomposition_loss,
            "decorrelation_loss": self.decorrelation_loss,
            "r2": None if r2 is None else r2.nanmean(),
            "weight": self.weight,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}


class PartialDecorrelation(Penalty):
    """Partial Feature Decorrelation Learning (Guo et al., Algorithm 1) for any training loop.

    One call per mini-batch does both steps of the algorithm::

        decorrelate = pfdl.PartialDecorrelation(num_features=2048)
        loss = F.cross_entropy(head(features), labels) + decorrelate(features)

    Step 1, :meth:`fit_step`, updates the decomposition network g on the detached features with g's own optimiser.
    Step 2, :meth:`penalty`, returns weight × L_decorr with g frozen, to be minimised by the model. Both may be called
    by themselves. In ``eval()`` mode nothing is updated. Step 1 never touches the gradients of the model, nor step 2
    those of g; g's parameters carry no ``.grad``, so a model optimiser that happens to hold them leaves them alone.

    The optimiser of g and the count of steps are part of ``state_dict()``: training resumes where it stopped.

    Args:
        num_features: p, the width of the embedding.
        weight: λ in L_task + λ L_decorr, or a function from the number of completed g-fits to λ. The paper uses 1.
        hidden: Hidden widths of g, see :class:`pfdl.FeatureDecomposition`.
        sharing: ``"indexed"`` or ``"strict"`` (the paper's), see :class:`pfdl.FeatureDecomposition`.
        activation: Activation of g.
        form: ``"paper"`` or ``"pairwise"``, see :func:`pfdl.functional.decorrelation_loss`.
        center: ``"none"`` (the paper's) or ``"batch"``, see :func:`pfdl.functional.decorrelation_loss`.
        fit_steps: Updates of g for every call; the paper makes one.
        warmup: Number of calls over which the weight rises linearly to its value.
        optimizer: Makes g's optimiser from its parameters. By default ``Adam(lr=1e-3)``; for another,
            ``functools.partial(torch.optim.SGD, lr=0.01)``.
        check_finite: Refuse features with NaN or infinity before anything is updated. On a GPU this look waits for
            the device once a call.

    Attributes:
        decomposition: The network g.
        optimizer: Its optimiser.
        last: :class:`Diagnostics` of the last call: L_g, L_decorr, R² of g for each feature.

    Raises:
        ValueError, TypeError: If an argument or the features cannot be used; nothing has been updated then.

    Example:
        >>> import torch, pfdl
        >>> _ = torch.manual_seed(0)
        >>> decorrelate = pfdl.PartialDecorrelation(num_features=4, hidden=8)
        >>> features = torch.randn(16, 4, requires_grad=True)
        >>> decorrelate(features).backward()
        >>> features.grad.shape, sorted(decorrelate.last.summary())
        (torch.Size([16, 4]), ['decomposition_loss', 'decorrelation_loss', 'r2', 'weight'])
    """

    needs = ("features",)

    def __init__(
        self,
        num_features: int,
        weight: float | Schedule = 1.0,
        *,
        hidden: int | Sequence[int] = 256,
        sharing: str = "indexed",
        activation: str | Callable[[Tensor], Tensor] = "relu",
        form: str = "paper",
        center: str = "none",
        fit_steps: int = 1,
        warmup: int = 0,
        optimizer: OptimizerFactory | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        check_choice("form", form, FORMS)
        check_choice("center", center, CENTERINGS)
        check_count("fit_steps", fit_steps, 1)
        check_count("warmup", warmup, 0)
        if not callable(weight):
            _check_weight(weight)
        self.weight = weight
        self.form = form
        self.center = center
        self.fit_steps = fit_steps
        self.warmup = warmup
        self.check_finite = check_finite
        self.decomposition = FeatureDecomposition(num_features, hidden, sharing=sharing, activation=activation)
        self.optimizer = (optimizer or partial(torch.optim.Adam, lr=1e-3))(self.decomposition.parameters())
        self.completed_fits = 0
        self.last = Diagnostics()

    @_outside_compiled_graphs
    def forward(self, features: Tensor) -> Tensor:
        """Run both steps on one mini-batch; in ``eval()`` mode only the second.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            weight × L_decorr, a scalar.
        """
        self._check(features)
        if self.training:
            self._fit(features)
        return self._penalise(features)

    @_outside_compiled_graphs
    def fit_step(self, features: Tensor) -> Tensor:
        """Step 1: update g, ``fit_steps`` times, to predict each feature from the others.

        Args:
            features: U, shape (n, p); used detached.

        Returns:
            L_g of the last update, measured before it, detached.
        """
        self._check(features)
        return self._fit(features)

    @_outside_compiled_graphs
    def penalty(self, features: Tensor) -> Tensor:
        """Step 2: weight × L_decorr with g frozen.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            A scalar whose gradient reaches the features and nothing of g.
        """
        self._check(features)
        return self._penalise(features)

    def current_weight(self) -> float:
        """λ as schedule and warm-up give it now."""
        weight = self.weight(self.completed_fits) if callable(self.weight) else self.weight
        _check_weight(weight)
        # The first call of a warm-up over w steps has 1/w of the weight, the w-th all of it.
        return weight * min(1.0, max(1, self.completed_fits) / self.warmup) if self.warmup else weight

    def _fit(self, features: Tensor) -> Tensor:
        u = features.detach().to(self._dtype)
        parameters = list(self.decomposition.parameters())
        loss = u.new_zeros(())
        for _ in range(self.fit_steps):
            with torch.enable_grad(), torch.autocast(u.device.type, enabled=False):
                unexplained = (u - self.decomposition(u)).square().mean(0)  # per feature; L_g is its mean
                loss = unexplained.mean()
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.last._unexplained = unexplained.detach()
        self.completed_fits += 1
        self.last.decomposition_loss = loss.detach()
        self.last._variance = u.var(0, correction=0)
        return loss.detach()

    def _penalise(self, features: Tensor) -> Tensor:
        # g is frozen by copies of its parameters: a later fit may change g before this loss is differentiated.
        frozen = {name: value.detach().clone() for name, value in self.decomposition.named_parameters()}
        with torch.autocast(features.device.type, enabled=False):
            u = features.to(self._dtype)
            correlated = torch.func.functional_call(self.decomposition, frozen, (u,))
            loss = decorrelation_loss(u, correlated, form=self.form, center=self.center)
        self.last.decorrelation_loss = loss.detach()
        self.last.weight = self.current_weight()
        return self.last.weight * loss

    @property
    def _dtype(self) -> torch.dtype:
        return self.decomposition.first_weight.dtype

    def _check(self, features: Tensor) -> None:
        check_features("features", features, self.decomposition.num_features)
        if self.check_finite:
            check_finite("features", features)
        self.current_weight()  # a schedule that gives nonsense is reported before g is updated

    def get_extra_state(self) -> dict[str, Any]:
        """The optimiser of g and the count of fits, for ``state_dict``."""
        return {"optimizer": self.optimizer.state_dict(), "completed_fits": self.completed_fits}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave."""
        # load_state_dict keeps the tensors it is given; without the copy two modules would share their moments.
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.completed_fits = int(state["completed_fits"])

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PartialDecorrelation:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The moments follow the parameters to their new device and dtype: loading casts them.
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def _check_weight(weight: float) -> None:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise TypeError(f"weight is {weight!r}; give a number or a function from the step to a number.")
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"weight is {weight}; give a finite number of at least 0.")
