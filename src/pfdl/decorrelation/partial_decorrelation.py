"""Partial Feature Decorrelation Learning as one term in a loss.

Algorithm 1 of the paper on one mini-batch U of n embeddings with p features each:

1. Predict each feature from the others: Ũ_ij = g(U_i without feature j).
2. Measure how badly: L_g = mean over i and j of (U_ij − Ũ_ij)².
3. Update g on L_g with its own optimiser; U is a constant here.
4. Predict again with the new g, which is a constant from here on.
5. Average over the samples, for each feature j: c_j = mean over i of Ũ_ij · M_ij,
   where M_ij is the mean of the other features of the sample, those k ≠ j.
6. Let the model minimise its own loss plus λ · L_decorr, where

       L_decorr  =  mean over j of c_j²  =  1/p Σ_j ( 1/(n(p−1)) Σ_i Σ_{k≠j} Ũ_ij U_ik )²

Lines 1 to 3 are the first step, lines 4 to 6 the second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.func import functional_call
from torch.optim import Optimizer

from pfdl._internal.cuda_graphs import Captured
from pfdl._internal.loading import load_optimizer_state
from pfdl._internal.processes import world_size
from pfdl._internal.validation import (
    OneThreadAtATime,
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
    largest_feature,
    standardize,
)
from pfdl.decorrelation.kernels import both_steps
from pfdl.parts import DataShape, Part

Schedule = Callable[[int], float]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class MiniBatch(NamedTuple):
    """A batch that has passed the checks, as both steps work on it.

    Attributes:
        u: The features in g's precision, shape (n, p), with the graph to the model.
        batch: Whose samples a mean is over: these, or those of all processes.
        weight: λ of this call.
    """

    u: Tensor
    batch: Batch
    weight: float


Result = TypeVar("Result")
Rest = ParamSpec("Rest")
Method = Callable[Concatenate["PartialDecorrelation", Rest], Result]


def _by_itself(method: Method[Rest, Result]) -> Method[Rest, Result]:
    """Run a method for one thread at a time, outside of inference mode and autocast, and of graphs
    that ``torch.compile`` builds around it; with gradients where the caller has them.

    What inference mode makes, such as the moments of g's optimiser, can never be changed; half
    precision is too coarse for long sums; and a graph cannot hold an optimiser.
    """

    @wraps(method)
    def run(self: PartialDecorrelation, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        device = self.decomposition.first_weight.device.type
        with_gradient = torch.is_grad_enabled()
        with (
            self._turn.inside(),
            torch.inference_mode(False),
            torch.set_grad_enabled(with_gradient),
            torch.autocast(device, enabled=False),
        ):
            return method(self, *args, **kwargs)

    return cast(Method[Rest, Result], torch.compiler.disable(run))  # type: ignore[no-untyped-call]


def _is_in_backward_pass() -> bool:
    """Return whether this code runs within a backward pass of autograd, as what is checkpointed
    does.
    """
    return torch._C._current_graph_task_id() != -1


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
        make_optimizer = optimizer or partial(torch.optim.Adam, lr=1e-3, fused=True)
        self.optimizer = make_optimizer(g.parameters())
        self.weight = weight
        self.center = center
        self.standardize = standardize
        self.fit_steps = fit_steps
        self.warmup = warmup
        self.completed_fits = 0
        self.last = Diagnostics()
        self._turn = OneThreadAtATime("penalty")
        self._is_shared = False  # whether all processes of a distributed run have the same g
        self.late_report = LateReport()
        self.captured = Captured()
        for part in g.modules():
            part.register_load_state_dict_pre_hook(_never_assign)  # type: ignore[no-untyped-call]

    @classmethod
    def from_data(cls, shape: DataShape, **settings: Any) -> PartialDecorrelation:
        """Build the penalty for data of this shape, which knows ``num_features``."""
        return cls(shape.num_features, **settings)

    @_by_itself
    def forward(self, features: Tensor) -> Tensor:
        """Run Algorithm 1 on one mini-batch: both steps; in ``eval()`` mode only the second.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            weight × L_decorr, a scalar.
        """
        mini_batch = self._prepare(features, fits=self.training)
        if self.training:
            if self._can_fuse(mini_batch):  # the same numbers as below, in one CUDA graph
                return both_steps.run(self, mini_batch.u, mini_batch.weight)
            self._first_step(mini_batch)
        return self.second_step(mini_batch)

    @_by_itself
    def fit_step(self, features: Tensor) -> Tensor:
        """Step 1: update g, ``fit_steps`` times, to predict each feature from the others; in
        ``eval()`` mode, too.

        Args:
            features: U, shape (n, p); used detached.

        Returns:
            L_g of the last update, measured before it, detached.
        """
        self._first_step(self._prepare(features, fits=True))
        return cast(Tensor, self.last.decomposition_loss)

    @_by_itself
    def penalty(self, features: Tensor) -> Tensor:
        """Step 2: weight × L_decorr with g frozen.

        Args:
            features: U, shape (n, p), with the graph to the model that made them.

        Returns:
            A scalar whose gradient reaches the features and nothing of g.
        """
        return self.second_step(self._prepare(features, fits=False))

    def _first_step(self, mini_batch: MiniBatch) -> None:
        """Update g, and note what was seen before its last update in ``last``."""
        u = mini_batch.u.detach()
        batch = mini_batch.batch
        for _ in range(self.fit_steps):
            correlated = self._update_g(u, batch)
        self.completed_fits += 1
        with torch.no_grad():
            unexplained = batch.mean((u - correlated).square())
            variance = batch.mean((u - batch.mean(u)).square())
        self.last = replace(self.last, unexplained=unexplained, variance=variance)

    def _update_g(self, u: Tensor, batch: Batch) -> Tensor:
        """Take one step of g's optimiser on L_g, and return Ũ from before it."""
        leaves = {
            name: parameter.detach().requires_grad_()
            for name, parameter in self.decomposition.named_parameters()
        }
        with torch.enable_grad():
            correlated: Tensor = functional_call(self.decomposition, leaves, (u,))
            loss = decomposition_loss(u, correlated, batch=batch)
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        self._take_step(u, loss.detach(), batch.average(gradients))
        return correlated

    def _take_step(self, u: Tensor, loss: Tensor, gradients: Sequence[Tensor]) -> None:
        """Take a step of g's optimiser, unless L_g or a gradient of it is not finite."""
        parameters = list(self.decomposition.parameters())
        # Adam squares the gradient, so that has to be finite as well.
        total = loss + sum(gradient.square().sum() for gradient in gradients)
        if not self._reports_late and not bool(total.isfinite()):
            raise ValueError(describe_update(loss, parameters))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            # The fused Adam reads memory in order, whatever the strides
            parameter.grad = gradient.contiguous()
        if self._reports_late:
            self.late_report.step(self.optimizer, u, total)
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def second_step(self, mini_batch: MiniBatch) -> Tensor:
        """Return what the model minimises, λ × L_decorr, and note what was seen in ``last``.

        A subclass that fits g as PFDL does and lets the model minimise something else overrides
        this method, and no other.
        """
        u, batch, weight = mini_batch
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

    def current_weight(self, fits: int | None = None) -> float:
        """Return λ as schedule and warm-up give it after so many completed fits; by default now."""
        if fits is None:
            fits = self.completed_fits
        if callable(self.weight):
            weight = self.weight(fits)
            check_number("weight", weight)
        else:
            weight = self.weight
        if not self.warmup:
            return weight
        # The first call of a warm-up over w steps has 1/w of the weight, the w-th all of it.
        return weight * min(1.0, max(1, fits) / self.warmup)

    def _prepare(self, features: Tensor, *, fits: bool) -> MiniBatch:
        """Check a batch, in all processes that train together, before anything is updated."""
        is_joint = (self.training or fits) and world_size() > 1
        try:
            self._check(features, fits=fits, alone=not is_joint)
            weight = self.current_weight(self.completed_fits + 1 if fits else None)
        except Exception as problem:
            if is_joint:
                join_batches(0, problem)  # the others would wait for a process that raised alone
            raise
        batch = self._join(features) if is_joint else Batch(len(features))
        # What inference mode made has no part in autograd
        u = features.clone() if features.is_inference() else features
        u = u.to(self.decomposition.first_weight.dtype)
        if self.standardize:
            u = standardize(u, batch=batch)
        return MiniBatch(u, batch, weight)

    def _check(self, features: Tensor, *, fits: bool, alone: bool) -> None:
        """Raise unless this process can use the features."""
        if alone:
            check_features("features", features, self.decomposition.num_features)
        else:  # the other processes may have the rows
            check_matrix("features", features, self.decomposition.num_features)
        if fits and _is_in_backward_pass():
            raise RuntimeError(
                "g would be fitted during a backward pass, as checkpointing does when it computes a"
                " part of the model again: g would learn twice from one batch. Call the penalty"
                " outside of that part."
            )
        if unpack_dual(features).tangent is not None:  # type: ignore[no-untyped-call]
            raise RuntimeError(
                "the penalty has no forward-mode derivative; use backward() or torch.autograd."
            )
        if self._reports_late:
            self.late_report.read()
            return
        dtype = self.decomposition.first_weight.dtype
        sizes = features.detach().to(dtype).abs()
        if not bool((sizes <= largest_feature(dtype)).all()):
            raise ValueError(describe_features(features, dtype))

    def _join(self, features: Tensor) -> Batch:
        """Return the union of the batches of all processes, which from the first on share one g."""
        batch = join_batches(len(features))
        if not self._is_shared:
            for parameter in self.decomposition.parameters():
                dist.broadcast(parameter.data, 0)
            self._is_shared = True
        return batch

    @property
    def _reports_late(self) -> bool:
        """Return whether bad values are found on a GPU, which nothing waits for, and reported
        later.
        """
        on_gpu = self.decomposition.first_weight.device.type == "cuda"
        return on_gpu and LateReport.serves(self.optimizer)

    def _can_fuse(self, mini_batch: MiniBatch) -> bool:
        """Return whether the kernels of a GPU can do both steps of this call."""
        u, batch, _ = mini_batch
        is_papers = type(self).second_step is PartialDecorrelation.second_step
        return is_papers and u.is_cuda and both_steps.serve(self, u, batch)

    def metrics(self) -> dict[str, Tensor]:
        """Return L_g, L_decorr with its parts and the R² of g on the last batch, as tensors on the
        device.
        """
        values = {
            "L_g": self.last.decomposition_loss,
            "L_decorr": self.last.decorrelation_loss,
            "level_part": self.last.level_part,
            "covariance_part": self.last.covariance_part,
            "R2": self.last.explained,
        }
        return {name: value for name, value in values.items() if value is not None}

    def recording_key(self) -> Hashable | None:
        """Return λ of the next call, the settings, and where g and its moments lie; None where bad
        values are reported at once.
        """
        if not self._reports_late:
            return None
        g = self.decomposition
        settings = (self.fit_steps, self.center, self.standardize, g.sharing, g.kernel)
        weight = self.current_weight(self.completed_fits + 1)
        return (weight, settings, both_steps.state_of(self))

    def note_replay(self) -> None:
        """Count a fit, and raise if an earlier one met values of no use."""
        self.completed_fits += 1
        self.late_report.read()

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
        if not isinstance(fits, int) or isinstance(fits, bool) or fits < 0:
            raise _wrong_state(state)
        if "optimizer" not in state:
            raise _wrong_state(state)
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.completed_fits = fits
        self._is_shared = False

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PartialDecorrelation:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The moments follow the parameters to their new device and dtype: loading casts them.
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def _wrong_state(state: object) -> ValueError:
    return ValueError(
        f"the state of g's optimiser is {str(state)[:80]}; it must have 'optimizer' and"
        " 'completed_fits', a whole number of at least 0."
    )


def _never_assign(
    part: nn.Module, state: object, prefix: str, metadata: dict[str, Any], *rest: object
) -> None:
    """Let ``load_state_dict(..., assign=True)`` copy into the parameters of g: its optimiser holds
    them.
    """
    metadata.pop("assign_to_params_buffers", None)
