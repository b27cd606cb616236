"""Partial Feature Decorrelation Learning as one term in a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pfdl._internal.modules import AtomicModule
from pfdl._internal.optimizer_state import load_optimizer_state
from pfdl._internal.validation import check_choice, check_count, check_features, check_matrix, describe_non_finite
from pfdl.decorrelation.cuda_graphs import CapturedSteps
from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.diagnostics import Diagnostics
from pfdl.decorrelation.distributed import Batch, share_from_first, world_size
from pfdl.decorrelation.finiteness import FiniteGuard
from pfdl.decorrelation.functional import CENTERINGS, FORMS, decorrelation_of
from pfdl.decorrelation.kernels.steps import decomposition_gradients, paper_penalty, with_gradient

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
Schedule = Callable[[int], float]


class DataShape(Protocol):
    """What :meth:`PartialDecorrelation.from_data` reads of the data."""

    @property
    def num_features(self) -> int:
        """The width of the embedding."""
        ...


Method = TypeVar("Method", bound=Callable[..., Tensor])


def _outside_compiled_graphs(method: Method) -> Method:
    """Keep a method that owns an optimiser out of graphs that ``torch.compile`` builds around it."""
    return cast(Method, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


class PartialDecorrelation(AtomicModule):
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

    The optimiser of g and the count of steps are part of ``state_dict()``: training resumes where it stopped.

    Args:
        num_features: p, the width of the embedding.
        weight: λ in L_task + λ L_decorr, or a function from the number of completed g-fits to λ. The paper uses 1.
        hidden: Hidden widths of g, see :class:`pfdl.FeatureDecomposition`.
        sharing: ``"strict"``, the paper's shared g, which is not told which feature it predicts; or ``"indexed"``, see
            :class:`pfdl.FeatureDecomposition`.
        activation: Activation of g.
        form: ``"paper"`` or ``"pairwise"``, see :func:`pfdl.decorrelation.functional.decorrelation_loss`.
        center: ``"none"`` (the paper's) or ``"batch"``, see :func:`pfdl.decorrelation.functional.decorrelation_loss`.
        fit_steps: Updates of g for every call; the paper makes one.
        warmup: Number of calls over which the weight rises linearly to its value.
        optimizer: Makes g's optimiser from its parameters. By default ``Adam(lr=1e-3, fused=True)``; for another,
            ``functools.partial(torch.optim.SGD, lr=0.01)``.
        check_finite: Refuse features with NaN or infinity before anything is updated. On a GPU with the default
            optimiser nobody waits for that look: such a batch does not update g, its loss is not a number, and one
            of the next calls raises.
        kernel: ``"auto"``, ``"fused"`` or ``"plain"``, see :class:`pfdl.FeatureDecomposition`. The fused penalty can
            be differentiated once only.
        synchronize: Under ``torch.distributed``, take all processes' batches for one while training. All processes
            must then call alike.

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
        fit_steps: int = 1,
        warmup: int = 0,
        optimizer: OptimizerFactory | None = None,
        check_finite: bool = True,
        kernel: str = "auto",
        synchronize: bool = True,
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
        self.synchronize = synchronize
        self.decomposition = FeatureDecomposition(
            num_features, hidden, sharing=sharing, activation=activation, kernel=kernel
        ).requires_grad_(False)
        self._skips_non_finite = optimizer is None  # the fused Adam can be told to, without waiting for the device
        self.optimizer = (optimizer or partial(torch.optim.Adam, lr=1e-3, fused=True))(self.decomposition.parameters())
        self.completed_fits = 0
        self.last = Diagnostics()
        self._guard = FiniteGuard()
        self._captured = CapturedSteps()
        self._g_is_shared = False

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> PartialDecorrelation:
        """Build the penalty for data of this shape, which knows ``num_features``."""
        return cls(shape.num_features, **settings)

    def divisor(self) -> float:
        """Return 1: the whole loss is divided by nothing, whatever the weight."""
        return 1.0

    def metrics(self) -> dict[str, Tensor]:
        """Return L_g, L_decorr and the R² of g on the last batch, as tensors: reading them waits for the device."""
        found = {
            "L_g": self.last.decomposition_loss,
            "L_decorr": self.last.decorrelation_loss,
            "R2": self.last.explained,
        }
        return {name: value for name, value in found.items() if value is not None}

    @_outside_compiled_graphs
    def forward(self, features: Tensor) -> Tensor:
        """Run both steps on one mini-batch; in ``eval()`` mode only the second.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            weight × L_decorr, a scalar.
        """
        batch = self._check(features)
        if self._can_be_captured(features, batch):
            return self._captured_steps(features, batch)
        if self.training:
            self._fit(features, batch)
        return self._penalise(features, batch)

    @_outside_compiled_graphs
    def fit_step(self, features: Tensor) -> Tensor:
        """Step 1: update g, ``fit_steps`` times, to predict each feature from the others.

        Args:
            features: U, shape (n, p); used detached.

        Returns:
            L_g of the last update, measured before it, detached.
        """
        return self._fit(features, self._check(features))

    @_outside_compiled_graphs
    def penalty(self, features: Tensor) -> Tensor:
        """Step 2: weight × L_decorr with g frozen.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            A scalar whose gradient reaches the features and nothing of g.
        """
        return self._penalise(features, self._check(features))

    def current_weight(self) -> float:
        """λ as schedule and warm-up give it now."""
        weight = self.weight(self.completed_fits) if callable(self.weight) else self.weight
        _check_weight(weight)
        # The first call of a warm-up over w steps has 1/w of the weight, the w-th all of it.
        return weight * min(1.0, max(1, self.completed_fits) / self.warmup) if self.warmup else weight

    def _fit(self, features: Tensor, batch: Batch) -> Tensor:
        u = features.detach().to(self._dtype)
        parameters = list(self.decomposition.parameters())
        if batch.processes > 1 and not self._g_is_shared:
            share_from_first(parameters)
            self._g_is_shared = True
        loss = u.new_zeros(())
        for _ in range(self.fit_steps):
            with torch.autocast(u.device.type, enabled=False):
                shares = self._decomposition_gradients(u, batch)
            unexplained, *gradients = batch.sum_all(shares)
            loss = unexplained.mean()  # unexplained is L_g of each feature
            if self._waits_for_nobody(u):
                self.optimizer.found_inf = self._guard.watch(loss)  # type: ignore[attr-defined]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.contiguous()  # the fused Adam reads memory in order, whatever the strides
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.last._unexplained = unexplained
        self.completed_fits += 1
        self.last.decomposition_loss = loss
        self.last._variance = _variance(u, batch)
        return loss

    def _decomposition_gradients(self, u: Tensor, batch: Batch) -> list[Tensor]:
        """L_g of each feature and the gradients of its mean, in the order of g's parameters: this process's share."""
        backend = self.decomposition.backend(u.device)
        if backend is not None:
            unexplained, found = decomposition_gradients(self.decomposition.one_hidden(u), backend, batch)
            return [unexplained, found.weight, found.offset, found.readout, found.constant]
        leaves = {
            name: value.detach().requires_grad_() for name, value in self.decomposition.named_parameters()
        }  # fmt: skip
        with torch.enable_grad():
            predicted = torch.func.functional_call(self.decomposition, leaves, (u,))
            unexplained = (u - predicted).square().sum(0) / batch.total
        return [unexplained.detach(), *torch.autograd.grad(unexplained.mean(), list(leaves.values()))]

    def _penalise(self, features: Tensor, batch: Batch) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            u = features.to(self._dtype)
            backend = self.decomposition.backend(u.device)
            if backend is not None and self.form == "paper":
                net = self.decomposition.one_hidden(u)
                wants_gradient = u.requires_grad and torch.is_grad_enabled()
                found = paper_penalty(net, backend, batch, self.center == "batch", wants_gradient)
                loss = with_gradient(u, *found)
            else:
                # g is frozen by copies: a later fit may change its parameters before this loss is differentiated.
                frozen = {name: value.detach().clone() for name, value in self.decomposition.named_parameters()}
                correlated = torch.func.functional_call(self.decomposition, frozen, (u,))
                loss = decorrelation_of(u, correlated, self.form, self.center, batch)
        self.last.decorrelation_loss = loss.detach()
        self.last.weight = self.current_weight()
        return self.last.weight * loss

    def _can_be_captured(self, features: Tensor, batch: Batch) -> bool:
        """Whether both steps together are work on one GPU that never looks at a result."""
        return (
            features.is_cuda
            and self.training
            and features.requires_grad
            and torch.is_grad_enabled()
            and self._waits_for_nobody(features)
            and batch.processes == 1
            and self.form == "paper"
            and self.decomposition.backend(features.device) is not None
            and not torch.cuda.is_current_stream_capturing()
        )

    def _captured_steps(self, features: Tensor, batch: Batch) -> Tensor:
        """Both steps, replayed from a CUDA graph once there is one."""
        backend = self.decomposition.backend(features.device)
        assert backend is not None
        center = self.center == "batch"

        def steps(u: Tensor) -> list[Tensor]:
            loss_g = self._fit(u, batch)
            assert self.last._unexplained is not None
            assert self.last._variance is not None
            loss, gradient = paper_penalty(self.decomposition.one_hidden(u), backend, batch, center, True)
            assert gradient is not None
            return [gradient, loss, loss_g, self.last._unexplained, self.last._variance]

        with torch.autocast(features.device.type, enabled=False):
            u = features.to(self._dtype)
            fits = self.completed_fits
            settings = (self.fit_steps, center, self.decomposition.sharing)
            gradient, loss, *seen = self._captured.run(steps, u.detach(), self.optimizer, settings)
            self.completed_fits = fits + 1
            self.last.decomposition_loss, self.last._unexplained, self.last._variance = seen
            self.last.decorrelation_loss = loss
            self.last.weight = self.current_weight()
            return self.last.weight * with_gradient(u, loss, gradient)

    @property
    def _dtype(self) -> torch.dtype:
        return self.decomposition.first_weight.dtype

    def _waits_for_nobody(self, features: Tensor) -> bool:
        return self.check_finite and self._skips_non_finite and features.is_cuda

    def _check(self, features: Tensor) -> Batch:
        """Refuse what cannot be used, before anything is updated, and say who takes part in this call."""
        num_features = self.decomposition.num_features
        together = self.synchronize and self.training and world_size() > 1
        (check_matrix if together else check_features)("features", features, num_features)
        self.current_weight()  # a schedule that gives nonsense is reported before g is updated
        batch = Batch(len(features), features.device, together)
        if self._waits_for_nobody(features):
            self._guard.raise_if_seen()
        elif self.check_finite:
            problem = describe_non_finite("features", features)
            # All processes stop together: one that raised alone would leave the others waiting for it.
            if batch.any(problem is not None, features.device):
                raise ValueError(problem or "the features of another process are not finite. Nothing was updated.")
        return batch

    def get_extra_state(self) -> dict[str, Any]:
        """The optimiser of g and the count of fits, for ``state_dict``."""
        return {"optimizer": self.optimizer.state_dict(), "completed_fits": self.completed_fits}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave, all of it or nothing.

        Raises:
            ValueError: If it is not the state of this optimiser over parameters of these shapes.
        """
        fits = state.get("completed_fits") if isinstance(state, Mapping) else None
        if isinstance(fits, bool) or not isinstance(fits, int) or fits < 0 or "optimizer" not in state:
            raise ValueError(
                f"the state of g's optimiser is {str(state)[:80]}; it must have 'optimizer' and 'completed_fits', "
                "a whole number of at least 0."
            )
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.completed_fits = fits
        self._g_is_shared = False

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # Also a module that holds this one loads it: everything is looked at before the first value is taken.
        for name, own in self.decomposition.named_parameters():
            _check_weights(f"{prefix}decomposition.{name}", state_dict, own)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PartialDecorrelation:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The moments follow the parameters to their new device and dtype: loading casts them.
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def _variance(u: Tensor, batch: Batch) -> Tensor:
    """The variance of each feature over the batches of all processes."""
    if batch.processes == 1:
        return u.var(0, correction=0)
    (total,) = batch.sum_all([u.sum(0)])
    (squares,) = batch.sum_all([(u - total / batch.total).square().sum(0)])
    return squares / batch.total


def _check_weights(name: str, state: Mapping[str, Any], own: Tensor) -> None:
    """Raise unless a state has no such weights of g, or some of the right shape that are finite."""
    if name not in state:
        return  # load_state_dict reports what is missing
    saved = state[name]
    if not isinstance(saved, Tensor) or not saved.is_floating_point() or saved.shape != own.shape:
        what = f"{saved.dtype}, {tuple(saved.shape)}" if isinstance(saved, Tensor) else type(saved).__name__
        raise ValueError(f"{name} in the state is {what}; g has floating-point numbers of shape {tuple(own.shape)}.")
    if not bool(torch.isfinite(saved).all()):
        raise ValueError(f"{name} in the state has a NaN or an infinity; all values must be finite.")


def _check_weight(weight: float) -> None:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise TypeError(f"weight is {weight!r}; give a number or a function from the step to a number.")
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"weight is {weight}; give a finite number of at least 0.")
