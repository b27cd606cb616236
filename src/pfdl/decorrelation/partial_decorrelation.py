"""Partial Feature Decorrelation Learning as one term in a loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.func import functional_call
from torch.optim import Optimizer

from pfdl._internal.cuda_graphs import Captured
from pfdl._internal.loading import load_optimizer_state
from pfdl._internal.validation import (
    check_choice,
    check_count,
    check_features,
    check_matrix,
    check_number,
)
from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.diagnostics import Diagnostics
from pfdl.decorrelation.distributed import Batch, join_batches
from pfdl.decorrelation.finiteness import LateReport, describe_features, describe_update
from pfdl.decorrelation.functional import (
    CENTERINGS,
    decomposition_loss,
    decorrelation_loss,
    decorrelation_parts,
    standardize,
)
from pfdl.decorrelation.kernels import both_steps
from pfdl.parts import DataShape, Part

Schedule = Callable[[int], float]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


Method = TypeVar("Method", bound=Callable[..., object])


def _outside_compiled_graphs(method: Method) -> Method:
    """Keep a method that owns an optimiser out of graphs that ``torch.compile`` builds around
    it.
    """
    return cast(Method, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


class PartialDecorrelation(Part):
    """Penalise the part of each feature that the others predict: PFDL, the paper's Algorithm 1.

    One call per mini-batch does both steps of the algorithm::

        decorrelate = pfdl.PartialDecorrelation(num_features=2048)
        loss = F.cross_entropy(head(features), labels) + decorrelate(features)

    Step 1, :meth:`fit_step`, updates the decomposition network g on the detached features with g's
    own optimiser. Step 2, :meth:`penalty`, returns weight × L_decorr with g frozen, to be minimised
    by the model. Both may be called by themselves. In ``eval()`` mode a call of the module updates
    nothing; :meth:`fit_step` always does. Step 1 never touches the gradients of the model, nor step
    2 those of g. To everybody else g's parameters are frozen (``requires_grad`` is False, no
    ``.grad``): a model optimiser that happens to hold them leaves them alone, and
    ``DistributedDataParallel`` does not wait for them.

    While training under ``torch.distributed`` both steps are those of the union of all processes'
    batches, and g is the same in all of them; all processes must make the same calls.

    The optimiser of g and the count of steps are part of ``state_dict()``: resumed training equals
    uninterrupted training. A state that does not fit is refused and changes nothing.

    Args:
        num_features: p, the width of the embedding.
        weight: λ in L_task + λ L_decorr, or a function from the number of completed g-fits to λ.
            The paper uses 1.
        hidden: Hidden widths of g, see :class:`pfdl.FeatureDecomposition`.
        sharing: ``"strict"``, the paper's shared g, which is not told which feature it predicts; or
            ``"indexed"``, see :class:`pfdl.FeatureDecomposition`.
        activation: Activation of g.
        center: ``"none"`` (the paper's) or ``"batch"``, see
            :func:`pfdl.decorrelation.functional.decorrelation_loss`.
        standardize: Standardise the features over the batch before both losses, with the gradient
            through it, see :func:`pfdl.decorrelation.functional.standardize`. Shrinking all
            features then lowers nothing. The paper does not.
        fit_steps: Updates of g for every call; the paper makes one.
        warmup: Number of calls over which the weight rises linearly to its value.
        optimizer: Makes g's optimiser from its parameters. By default ``Adam(lr=1e-3,
            fused=True)``; the paper's Algorithm 1 says stochastic gradient descent:
            ``functools.partial(torch.optim.SGD, lr=0.01)``.
        kernel: ``"auto"`` or ``"plain"``, see :class:`pfdl.FeatureDecomposition`. On a GPU the
            fused penalty can be differentiated once only.

    Attributes:
        decomposition: The network g.
        optimizer: Its optimiser.
        completed_fits: How many batches g was fitted to.
        last: :class:`pfdl.decorrelation.Diagnostics` of the last call: L_g, L_decorr and its parts,
            R² of g for each feature.

    Raises:
        ValueError, TypeError: If an argument or the features cannot be used, as with a NaN, an
            infinity or values so large that L_decorr would overflow; nothing has been updated then.
            On a GPU with a fused Adam, the default, the look at the values is asynchronous: such a
            batch does not update g, its loss is of no use, and one of the next calls raises.

    Example:
        >>> import torch, pfdl
        >>> _ = torch.manual_seed(0)
        >>> decorrelate = pfdl.PartialDecorrelation(num_features=4, hidden=8)
        >>> features = torch.randn(16, 4, requires_grad=True)
        >>> decorrelate(features).backward()
        >>> features.grad.shape, decorrelate.last.summary()["weight"]
        (torch.Size([16, 4]), 1.0)
    """

    reference = "Guo et al., 2021"
    sums_over_processes = True

    def __init__(
        self,
        num_features: int,
        weight: float | Schedule = 1.0,
        *,
        hidden: int | Sequence[int] = 256,
        sharing: Literal["strict", "indexed"] = "strict",
        activation: str = "relu",
        center: Literal["none", "batch"] = "none",
        standardize: bool = False,
        fit_steps: int = 1,
        warmup: int = 0,
        optimizer: OptimizerFactory | None = None,
        kernel: Literal["auto", "plain"] = "auto",
    ) -> None:
        super().__init__()
        check_choice("center", center, CENTERINGS)
        check_count("fit_steps", fit_steps, 1)
        check_count("warmup", warmup, 0)
        if not callable(weight):
            check_number("weight", weight)
        g = FeatureDecomposition(
            num_features, hidden, sharing=sharing, activation=activation, kernel=kernel
        )
        self.decomposition = g.requires_grad_(False)
        self.optimizer = (optimizer or partial(torch.optim.Adam, lr=1e-3, fused=True))(
            g.parameters()
        )
        self.weight = weight
        self.center = center
        self.standardize = standardize
        self.fit_steps = fit_steps
        self.warmup = warmup
        self.completed_fits = 0
        self.last = Diagnostics()
        self._is_shared = False  # whether all processes of a distributed run have the same g
        self._late_report = LateReport()
        self._captured = Captured()
        for part in g.modules():
            part.register_load_state_dict_pre_hook(_never_assign)  # type: ignore[no-untyped-call]

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> PartialDecorrelation:
        """Build the penalty for data of this shape, which knows ``num_features``."""
        return cls(shape.num_features, **settings)

    @_outside_compiled_graphs
    def forward(self, features: Tensor) -> Tensor:
        """Run Algorithm 1 on one mini-batch: both steps; in ``eval()`` mode only the second.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            weight × L_decorr, a scalar.
        """
        with self._mini_batch(features, fits=self.training) as (u, batch, weight):
            is_pfdl = type(self) is PartialDecorrelation  # a subclass has a second step of its own
            if is_pfdl and self.training and u.is_cuda and both_steps.serve(self, u, batch):
                # The same numbers as below, in one CUDA graph
                return both_steps.run(self, u, weight)
            if self.training:
                self._fit(u.detach(), batch)
            return self._penalise(u, batch, weight)

    @_outside_compiled_graphs
    def fit_step(self, features: Tensor) -> Tensor:
        """Step 1: update g, ``fit_steps`` times, to predict each feature from the others; in
        ``eval()`` mode, too.

        Args:
            features: U, shape (n, p); used detached.

        Returns:
            L_g of the last update, measured before it, detached.
        """
        with self._mini_batch(features, fits=True) as (u, batch, _):
            self._fit(u.detach(), batch)
            return cast(Tensor, self.last.decomposition_loss)

    @_outside_compiled_graphs
    def penalty(self, features: Tensor) -> Tensor:
        """Step 2: weight × L_decorr with g frozen.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            A scalar whose gradient reaches the features and nothing of g.
        """
        with self._mini_batch(features, fits=False) as (u, batch, weight):
            return self._penalise(u, batch, weight)

    def current_weight(self, fits: int | None = None) -> float:
        """Return λ as schedule and warm-up give it after so many completed fits; by default now."""
        fits = self.completed_fits if fits is None else fits
        weight = self.weight(fits) if callable(self.weight) else self.weight
        if callable(self.weight):
            check_number("weight", weight)
        # The first call of a warm-up over w steps has 1/w of the weight, the w-th all of it.
        return weight * min(1.0, max(1, fits) / self.warmup) if self.warmup else weight

    def metrics(self) -> dict[str, Tensor]:
        """Return L_g, L_decorr with its parts and the R² of g on the last batch, as tensors on the
        device.
        """
        found = {
            "L_g": self.last.decomposition_loss,
            "L_decorr": self.last.decorrelation_loss,
            "level_part": self.last.level_part,
            "covariance_part": self.last.covariance_part,
            "R2": self.last.explained,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _fit(self, u: Tensor, batch: Batch) -> None:
        g, parameters = self.decomposition, dict(self.decomposition.named_parameters())
        correlated = u
        for _ in range(self.fit_steps):
            leaves = {
                name: parameter.detach().requires_grad_() for name, parameter in parameters.items()
            }
            with torch.enable_grad():
                correlated = functional_call(g, leaves, (u,))
                loss = decomposition_loss(u, correlated, batch=batch)
                gradients = batch.average(torch.autograd.grad(loss, list(leaves.values())))
            # Adam squares the gradient, so that has to be finite as well.
            total = loss.detach() + sum(gradient.square().sum() for gradient in gradients)
            late = u.is_cuda and LateReport.serves(self.optimizer)
            if not late and not bool(total.isfinite()):
                raise ValueError(describe_update(loss, parameters.values()))
            for parameter, gradient in zip(parameters.values(), gradients, strict=True):
                # The fused Adam reads memory in order, whatever the strides
                parameter.grad = gradient.contiguous()
            if late:
                self._late_report.step(self.optimizer, u, total)
            else:
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.completed_fits += 1
        with torch.no_grad():
            unexplained = batch.mean((u - correlated).square())
            variance = batch.mean((u - batch.mean(u)).square())
        self.last = replace(self.last, unexplained=unexplained, variance=variance)

    def _penalise(self, u: Tensor, batch: Batch, weight: float) -> Tensor:
        # g is frozen by copies: a later fit may change its parameters before this loss is
        # differentiated.
        frozen = {
            name: parameter.detach().clone()
            for name, parameter in self.decomposition.named_parameters()
        }
        correlated = functional_call(self.decomposition, frozen, (u,))
        loss = decorrelation_loss(u, correlated, center=self.center, batch=batch)
        with torch.no_grad():
            level, covariance = decorrelation_parts(u, correlated, batch=batch)
        self.last = replace(
            self.last,
            decorrelation_loss=loss.detach(),
            weight=weight,
            level_part=level,
            covariance_part=covariance,
        )
        return weight * loss

    @contextmanager
    def _mini_batch(self, features: Tensor, *, fits: bool) -> Iterator[tuple[Tensor, Batch, float]]:
        """Check a batch before anything is updated; give the features in g's precision, whose they
        are, and λ.
        """
        g, graph = self.decomposition, torch.is_grad_enabled()
        dtype, device = g.first_weight.dtype, g.first_weight.device
        joint = (self.training or fits) and dist.is_available() and dist.is_initialized()
        # What inference mode makes, such as moments, can never be changed; half precision is too
        # coarse for long sums.
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(graph),
            torch.autocast(device.type, enabled=False),
        ):
            weight, problem = 0.0, None
            # L_decorr is of the fourth order in the features
            largest = torch.finfo(dtype).max ** 0.25
            try:
                (check_matrix if joint else check_features)("features", features, g.num_features)
                if fits and torch._C._current_graph_task_id() != -1:
                    raise RuntimeError(
                        "g would be fitted during a backward pass, as checkpointing does when it"
                        " computes a part of the model again: g would learn twice from one batch."
                        " Call the penalty outside of that part."
                    )
                if unpack_dual(features).tangent is not None:  # type: ignore[no-untyped-call]
                    raise RuntimeError(
                        "the penalty has no forward-mode derivative; use backward() or"
                        " torch.autograd."
                    )
                weight = self.current_weight(self.completed_fits + fits)
                if device.type == "cuda" and LateReport.serves(self.optimizer):
                    self._late_report.read()
                elif not bool((features.detach().to(dtype).abs() <= largest).all()):
                    raise ValueError(describe_features(features, dtype))
            except Exception as error:
                if not joint:
                    raise
                problem = error  # a process that raised alone would leave the others waiting for it
            batch = (
                join_batches(0 if problem else len(features), problem)
                if joint
                else Batch(len(features))
            )
            if batch.processes > 1 and not self._is_shared:
                for parameter in g.parameters():
                    dist.broadcast(parameter.data, 0)
                self._is_shared = True
            u = (features.clone() if features.is_inference() else features).to(dtype)
            yield (standardize(u, batch=batch) if self.standardize else u), batch, weight

    def get_extra_state(self) -> dict[str, Any]:
        """Return the optimiser of g and the count of fits, for ``state_dict``."""
        return {
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "completed_fits": self.completed_fits,
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take up what ``get_extra_state`` gave, all of it or nothing.

        Raises:
            ValueError: If it is not the state of this optimiser over parameters of these shapes.
        """
        fits = state.get("completed_fits") if isinstance(state, Mapping) else None
        if (
            isinstance(fits, bool)
            or not isinstance(fits, int)
            or fits < 0
            or "optimizer" not in state
        ):
            raise ValueError(
                f"the state of g's optimiser is {str(state)[:80]}; it must have 'optimizer' and"
                " 'completed_fits', a whole number of at least 0."
            )
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.completed_fits = fits
        self._is_shared = False

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PartialDecorrelation:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The moments follow the parameters to their new device and dtype: loading casts them.
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def _never_assign(
    part: nn.Module, state: object, prefix: str, metadata: dict[str, Any], *rest: object
) -> None:
    """Let ``load_state_dict(..., assign=True)`` copy into the parameters of g: its optimiser holds
    them.
    """
    metadata.pop("assign_to_params_buffers", None)
