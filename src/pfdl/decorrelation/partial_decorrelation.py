"""Partial Feature Decorrelation Learning as one term in a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from pfdl._internal.devices import full_precision
from pfdl._internal.processes import world_size
from pfdl._internal.validation import check_choice, check_count, check_features, check_matrix
from pfdl.decorrelation.backend import StepBackend
from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.diagnostics import Diagnostics, GradientParts
from pfdl.decorrelation.distributed import Announcement, Batch, Meeting, share_from_first
from pfdl.decorrelation.finiteness import WaitingCheck
from pfdl.decorrelation.functional import CENTERINGS, FORMS, standardize_of
from pfdl.decorrelation.steps import Algorithm, Steps
from pfdl.decorrelation.trained_decomposition import OptimizerFactory, TrainedDecomposition

Schedule = Callable[[int], float]


class DataShape(Protocol):
    """What :meth:`PartialDecorrelation.from_data` reads of the data."""

    @property
    def num_features(self) -> int:
        """Return the width of the embedding."""
        ...


Method = TypeVar("Method", bound=Callable[..., object])


def _outside_compiled_graphs(method: Method) -> Method:
    """Keep a method that owns an optimiser out of graphs that ``torch.compile`` builds around it."""
    return cast(Method, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


class PartialDecorrelation(TrainedDecomposition):
    """Penalise the part of each feature that the others predict: PFDL, the paper's Algorithm 1.

    One call per mini-batch does both steps of the algorithm::

        decorrelate = pfdl.PartialDecorrelation(num_features=2048)
        loss = F.cross_entropy(head(features), labels) + decorrelate(features)

    Step 1, :meth:`fit_step`, updates the decomposition network g on the detached features with g's own optimiser.
    Step 2, :meth:`penalty`, returns weight × L_decorr with g frozen, to be minimised by the model. Both may be called
    by themselves. In ``eval()`` mode a call of the module updates nothing; :meth:`fit_step` always does.
    Step 1 never touches the gradients of the model, nor step 2 those of g. To everybody else g's parameters are frozen
    (``requires_grad`` is False, no ``.grad``): a model optimiser that happens to hold them leaves them alone, and
    ``DistributedDataParallel`` does not wait for them.

    Under ``torch.distributed`` both steps are those of the union of all processes' batches, and g is the same in all
    of them (``docs/distributed.md``).

    The optimiser of g and the count of steps are part of ``state_dict()``: resumed training equals uninterrupted
    training. A state that does not fit is refused and changes nothing. Threads that share a penalty take turns.

    Args:
        num_features: p, the width of the embedding.
        weight: λ in L_task + λ L_decorr, or a function from the number of completed g-fits to λ. The paper uses 1.
        hidden: Hidden widths of g, see :class:`pfdl.FeatureDecomposition`.
        sharing: ``"strict"``, the paper's shared g, which is not told which feature it predicts; or ``"indexed"``, see
            :class:`pfdl.FeatureDecomposition`.
        activation: Activation of g.
        form: ``"paper"`` or ``"pairwise"``, see :func:`pfdl.decorrelation.functional.decorrelation_loss`.
        center: ``"none"`` (the paper's) or ``"batch"``, see :func:`pfdl.decorrelation.functional.decorrelation_loss`.
        standardize: Standardise the features over the batch before both losses, with the gradient through it, see
            :func:`pfdl.decorrelation.functional.standardize`. Shrinking all features then lowers nothing. The paper
            does not.
        fit_steps: Updates of g for every call; the paper makes one.
        warmup: Number of calls over which the weight rises linearly to its value.
        optimizer: Makes g's optimiser from its parameters. By default ``Adam(lr=1e-3, fused=True)``; the paper's
            Algorithm 1 says stochastic gradient descent: ``functools.partial(torch.optim.SGD, lr=0.01)``.
        check_finite: Refuse features with NaN or infinity, or so large that L_decorr would overflow, before anything
            is updated. On a GPU with a fused Adam, the default, the check is asynchronous: such a batch does not update
            g, its loss is of no use, and one of the next calls raises.
        kernel: ``"auto"``, ``"fused"`` or ``"plain"``, see :class:`pfdl.FeatureDecomposition`. The fused penalty can
            be differentiated once only.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training. All processes
            must then call alike.

    Attributes:
        decomposition: The network g.
        optimizer: Its optimiser.
        last: :class:`pfdl.decorrelation.Diagnostics` of the last call: L_g, L_decorr and its parts, R² of g for each
            feature.

    Raises:
        ValueError, TypeError: If an argument or the features cannot be used; nothing has been updated then.

    Example:
        >>> import torch, pfdl
        >>> _ = torch.manual_seed(0)
        >>> decorrelate = pfdl.PartialDecorrelation(num_features=4, hidden=8)
        >>> features = torch.randn(16, 4, requires_grad=True)
        >>> decorrelate(features).backward()
        >>> features.grad.shape, decorrelate.last.summary()["weight"]
        (torch.Size([16, 4]), 1.0)
    """

    needs = ("features",)
    reference = "Guo et al., 2021"

    def __init__(
        self,
        num_features: int,
        weight: float | Schedule = 1.0,
        *,
        hidden: int | Sequence[int] = 256,
        sharing: str = "strict",
        activation: str | Callable[[Tensor], Tensor] = "relu",
        form: str = "paper",
        center: str = "none",
        standardize: bool = False,
        fit_steps: int = 1,
        warmup: int = 0,
        optimizer: OptimizerFactory | None = None,
        check_finite: bool = True,
        kernel: str = "auto",
        synchronize: bool = True,
    ) -> None:
        check_choice("form", form, FORMS)
        check_choice("center", center, CENTERINGS)
        check_count("fit_steps", fit_steps, 1)
        check_count("warmup", warmup, 0)
        if not callable(weight):
            _check_weight(weight)
        g = FeatureDecomposition(num_features, hidden, sharing=sharing, activation=activation, kernel=kernel)
        super().__init__(g, optimizer or partial(torch.optim.Adam, lr=1e-3, fused=True))
        self.weight = weight
        self.form = form
        self.center = center
        self.standardize = standardize
        self.fit_steps = fit_steps
        self.warmup = warmup
        self.check_finite = check_finite
        self.synchronize = synchronize
        self.last = Diagnostics()
        self._backend = StepBackend()

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> PartialDecorrelation:
        """Build the penalty for data of this shape, which knows ``num_features``."""
        return cls(shape.num_features, **settings)

    def divisor(self) -> float:
        """Return 1: the whole loss is divided by nothing, whatever the weight."""
        return 1.0

    def metrics(self) -> dict[str, Tensor]:
        """Return L_g, L_decorr with its parts and the R² of g on the last batch, as tensors on the device."""
        found = {
            "L_g": self.last.decomposition_loss,
            "L_decorr": self.last.decorrelation_loss,
            "level_part": self.last.level_part,
            "covariance_part": self.last.covariance_part,
            "R2": self.last.explained,
        }
        return {name: value for name, value in found.items() if value is not None}

    @_outside_compiled_graphs
    def forward(self, features: Tensor, meeting: Meeting | None = None) -> Tensor:
        """Run both steps on one mini-batch; in ``eval()`` mode only the second.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.
            meeting: What the processes told each other, if somebody has passed on :meth:`announce` already.

        Returns:
            weight × L_decorr, a scalar.
        """
        with self._mini_batch(features, fits=self.training, penalises=True, meeting=meeting) as (steps, weight):
            if self.training:
                self._fit(steps)
            return self._penalise(steps, weight)

    @_outside_compiled_graphs
    def fit_step(self, features: Tensor) -> Tensor:
        """Step 1: update g, ``fit_steps`` times, to predict each feature from the others; in ``eval()`` mode, too.

        Args:
            features: U, shape (n, p); used detached.

        Returns:
            L_g of the last update, measured before it, detached.
        """
        with self._mini_batch(features, fits=True, penalises=False) as (steps, _):
            self._fit(steps)
            return cast(Tensor, self.last.decomposition_loss)

    @_outside_compiled_graphs
    def penalty(self, features: Tensor) -> Tensor:
        """Step 2: weight × L_decorr with g frozen.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            A scalar whose gradient reaches the features and nothing of g.
        """
        with self._mini_batch(features, fits=False, penalises=True) as (steps, weight):
            return self._penalise(steps, weight)

    @_outside_compiled_graphs
    def gradient_parts(self, features: Tensor) -> GradientParts:
        """Return the gradients of L_decorr and of its two parts at the features, with g frozen; update nothing.

        Costs about four times :meth:`penalty`. Under ``torch.distributed`` the gradients are those of this process's
        samples, and all processes must call alike.

        Args:
            features: U, shape (n, p).

        Returns:
            Three gradients of shape (n, p), without the weight; see
            :func:`pfdl.decorrelation.functional.decorrelation_parts`.

        Raises:
            ValueError: If the form is not the paper's, which alone has these parts.
        """
        if self.form != "paper":
            raise ValueError(f"form is {self.form!r}; only the paper's form has a level and a covariance part.")
        if not self._is_joint():  # else what is wrong with a batch is for all processes to know
            check_features("features", features, self.decomposition.num_features)
        with torch.inference_mode(False), torch.enable_grad():
            leaf = features.detach().clone().requires_grad_()
            with self._mini_batch(leaf, fits=False, penalises=False) as (steps, _):
                return steps.gradient_parts(leaf)

    def announce(self, features: Tensor) -> Announcement | None:
        """Return what this process would tell the others before a call; None if it would call by itself.

        :class:`pfdl.Objective` passes on what its parts announce, so that the processes meet once a step.

        Args:
            features: U, shape (n, p).
        """
        return self._announcement(features, fits=True) if self._is_joint() else None

    def current_weight(self) -> float:
        """Return λ as schedule and warm-up give it now."""
        return self._weight_after(self.completed_fits)

    def _weight_after(self, fits: int) -> float:
        weight = self.weight(fits) if callable(self.weight) else self.weight
        _check_weight(weight)
        # The first call of a warm-up over w steps has 1/w of the weight, the w-th all of it.
        return weight * min(1.0, max(1, fits) / self.warmup) if self.warmup else weight

    def _fit(self, steps: Steps) -> None:
        fitted = steps.fit()
        self.completed_fits += 1
        self.last = replace(self.last, unexplained=fitted.unexplained, variance=fitted.variance)

    def _penalise(self, steps: Steps, weight: float) -> Tensor:
        found = steps.penalise(weight)
        self.last = replace(
            self.last,
            decorrelation_loss=found.loss,
            weight=weight,
            sums=found.sums,
            samples=steps.batch.total,
            centred=self.center == "batch",
        )
        return found.penalty

    @contextmanager
    def _mini_batch(
        self, features: Tensor, *, fits: bool, penalises: bool, meeting: Meeting | None = None
    ) -> Iterator[tuple[Steps, float]]:
        """Check a batch before anything is updated; give the steps on it and the weight that its penalty has."""
        g = self.decomposition
        algorithm = self._algorithm()
        with self._backend.lock, ExitStack() as modes:
            if torch.is_inference_mode_enabled():  # what it makes, such as moments, could never be changed again
                modes.enter_context(torch.inference_mode(False))
                modes.enter_context(torch.no_grad())
            modes.enter_context(full_precision(g.first_weight.device.type))  # less is too coarse for long sums
            if self._is_joint():
                batch = self._union(self._announcement(features, fits).meet() if meeting is None else meeting)
            else:
                self._check(features, fits)
                batch = Batch(len(features))
            weight = self._weight_after(self.completed_fits + fits)
            u = (features.clone() if features.is_inference() else features).to(g.first_weight.dtype)
            if self.standardize:
                u = standardize_of(u, batch)
            finiteness = self._backend.finiteness(algorithm, self.check_finite, g.first_weight.device)
            yield self._backend.begin(algorithm, u, batch, finiteness, both=fits and penalises), weight

    def _algorithm(self) -> Algorithm:
        return Algorithm(self.decomposition, self.optimizer, self.fit_steps, self.form, self.center)

    def _is_joint(self) -> bool:
        """Return whether a call is one of all processes."""
        return self.synchronize and self.training and world_size() > 1

    def _check(self, features: Tensor, fits: bool) -> None:
        """Raise unless a call with these features can be made."""
        g = self.decomposition
        (check_matrix if self._is_joint() else check_features)("features", features, g.num_features)
        self._weight_after(self.completed_fits + fits)
        finiteness = self._backend.finiteness(self._algorithm(), self.check_finite, g.first_weight.device)
        if isinstance(finiteness, WaitingCheck):
            if said := finiteness.problem_of(features.detach(), features.detach().to(g.first_weight.dtype)):
                raise ValueError(said)
        elif finiteness is self._backend.guard:
            self._backend.guard.raise_if_seen()

    def _announcement(self, features: Tensor, fits: bool) -> Announcement:
        try:
            self._check(features, fits)
        except Exception as error:
            return Announcement(0, error, self._signature(), self.is_shared)
        return Announcement(len(features), None, self._signature(), self.is_shared)

    def _union(self, meeting: Meeting) -> Batch:
        """Join the batches of all processes; the first time, g becomes that of the first process everywhere."""
        batch = meeting.batch(least=2)  # one sample has no correlation
        if not all(meeting.numbers[0]):
            share_from_first(self.decomposition.parameters())
            self.is_shared = True
        return batch

    def _signature(self) -> str:
        """Say what must be the same in all processes."""
        g, optimizer = self.decomposition, self.optimizer
        settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        return (
            f"num_features={g.num_features}, hidden={g.hidden}, sharing={g.sharing!r}, {g.first_weight.dtype}, "
            f"form={self.form!r}, center={self.center!r}, standardize={self.standardize}, fit_steps={self.fit_steps}, "
            f"optimizer {type(optimizer).__name__} with {settings}"
        )


def _check_weight(weight: float) -> None:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise TypeError(f"weight is {weight!r}; give a number or a function from the step to a number.")
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"weight is {weight}; give a finite number of at least 0.")
