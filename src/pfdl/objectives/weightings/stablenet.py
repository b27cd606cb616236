"""The sample weights of StableNet."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pfdl._internal.validation import check_count, check_matrix, check_number, describe_non_finite
from pfdl.objectives.base import Weighting

WARM_BATCHES = 10
"""Batches over which the memory is a plain mean, before it becomes a moving average."""


class StableNet(Weighting):
    r"""Weights that remove dependence between features beyond correlation (Zhang et al., 2021).

    Each feature is mapped by random Fourier functions z, :math:`\sqrt2 (\cos + \sin)` of a random
    affine map, whose values are scaled to [0, π/2] over the features of a sample. The weights w =
    softmax(θ) minimise

    .. math::
        \frac1\lambda \sum_z \sum_{j \ne k} \operatorname{cov}_w(z(U_j), z(U_k))^2 + \sum_i w_i^2.

    A memory of one batch, a moving average of the features and weights of the batches seen, takes
    part in the covariances without being learnt; it is part of ``state_dict()``. Costs O(n·p·min(n,
    p)) a step.

    Known of it: the weights may stay at 1/n. Read ``effective_sample_size``.

    Args:
        functions: Number of random affine maps, drawn again for each step.
        steps: Steps of SGD on θ for each batch.
        learning_rate: Learning rate of these steps; a tenth of it in the second half.
        momentum: Momentum of these steps.
        decay: How much of the memory stays at each batch.
        balance: λ, 70 in the published code.
    """

    memory_features: Tensor
    memory_weights: Tensor
    batches_seen: Tensor

    reference = "Zhang et al., 2021"
    sized_by_data = ("memory_features", "memory_weights")

    def __init__(
        self,
        *,
        functions: int = 1,
        steps: int = 20,
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        decay: float = 0.9,
        balance: float = 70.0,
    ) -> None:
        super().__init__()
        check_count("functions", functions, 1)
        check_count("steps", steps, 0)
        check_number("learning_rate", learning_rate)
        check_number("momentum", momentum, maximum=1)
        check_number("decay", decay, maximum=1)
        check_number("balance", balance, torch.finfo(torch.float32).tiny)
        self.functions = functions
        self.steps = steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay
        self.balance = balance
        self.register_buffer("memory_features", torch.empty(0, 0))
        self.register_buffer("memory_weights", torch.empty(0))
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.long))

    def forward(self, features: Tensor) -> Tensor:
        """Learn the weights of a batch of features, shape (n, p), and remember the batch."""
        check_matrix("features", features)
        u = features.detach().float()
        self._check(u)
        maps = draw_maps(u, self.functions, self.steps)
        memory = [self.memory_features, self.memory_weights] if self._remembers else []
        settings = (self.functions, self.steps, self.learning_rate, self.momentum, self.balance)
        (logits,) = self.captured.run(self._learn, [u, *maps, *memory], settings)
        if self.training:
            if problem := describe_non_finite("the weights of StableNet", logits[None]):
                raise ValueError(problem)
            self._remember(u, logits)
        return self.finish(logits.softmax(0))

    @property
    def _remembers(self) -> bool:
        return self.memory_features.numel() > 0

    def _check(self, u: Tensor) -> None:
        """Raise unless the memory can take up these features."""
        # A value that is not finite would spoil the memory for all later batches
        if problem := describe_non_finite("features", u):
            raise ValueError(problem)
        width = self.memory_features.shape[1]
        if self._remembers and u.shape[1] != width:
            raise ValueError(
                f"features have {u.shape[1]} columns, but StableNet remembers batches of {width};"
                " give features of one width."
            )

    @torch.no_grad()
    def _learn(self, u: Tensor, frequency: Tensor, phase: Tensor, *memory: Tensor) -> list[Tensor]:
        """Run SGD with momentum on θ; the gradient is in closed form, which is faster than a
        backward pass a step.
        """
        logits = torch.ones_like(u[:, 0])
        velocity = torch.zeros_like(logits)
        with_memory = torch.cat([u, memory[0]]) if memory else u
        remembered = memory[1:]
        for step in range(self.steps):
            mapped = fourier_features(with_memory, frequency[step], phase[step])
            everyone = torch.cat([logits, *remembered]).softmax(0)
            gradient = dependence_gradient(mapped, everyone) / self.balance
            # Through the softmax over all
            slope = everyone[: len(u)] * (gradient[: len(u)] - everyone @ gradient)
            weights = logits.softmax(0)
            slope += 2 * weights * (weights - weights @ weights)
            velocity.mul_(self.momentum).add_(slope)
            is_first_half = 2 * step < self.steps
            rate = self.learning_rate * (1.0 if is_first_half else 0.1)
            logits.add_(velocity, alpha=-rate)
        return [logits]

    def check_loaded(self) -> None:
        """Refuse a memory without a weight for each sample, or a count that is none."""
        if len(self.memory_features) != len(self.memory_weights):
            raise ValueError(
                f"the state has {len(self.memory_features)} remembered samples and"
                f" {len(self.memory_weights)} weights."
            )
        if self.batches_seen < 0:
            raise ValueError(
                f"batches_seen in the state is {int(self.batches_seen)}; it must not be negative."
            )

    def _remember(self, u: Tensor, logits: Tensor) -> None:
        """Blend the batch into the memory; a shorter one (the last of an epoch) into its first
        rows.
        """
        if not self._remembers:
            self.memory_features = u.clone()
            self.memory_weights = logits.clone()
        seen = int(self.batches_seen)
        kept = seen / (seen + 1) if seen < WARM_BATCHES else self.decay
        rows = min(len(u), len(self.memory_features))
        features = self.memory_features[:rows]
        weights = self.memory_weights[:rows]
        features.copy_(kept * features + (1 - kept) * u[:rows])
        weights.copy_(kept * weights + (1 - kept) * logits[:rows])
        self.batches_seen += 1


def draw_maps(u: Tensor, functions: int, steps: int) -> tuple[Tensor, Tensor]:
    """Draw for each step a frequency for each function, and a phase for each of its features."""
    frequency = torch.randn(steps, functions, 1, 1, device=u.device, dtype=u.dtype)
    turns = torch.rand(steps, functions, 1, u.shape[1], device=u.device, dtype=u.dtype)
    return frequency, 2 * math.pi * turns


def fourier_features(u: Tensor, frequency: Tensor, phase: Tensor) -> Tensor:
    """Map each feature, (n, p), by frequencies (functions, 1, 1) and phases (functions, 1, p):
    (functions, n, p).
    """
    affine = frequency * u + phase
    above = affine - affine.amin(-1, keepdim=True)
    highest = above.amax(-1, keepdim=True).clamp(min=torch.finfo(u.dtype).tiny)
    angle = above / highest * (math.pi / 2)
    return math.sqrt(2 / len(frequency)) * (angle.cos() + angle.sin())


def dependence_gradient(mapped: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of Σ_z Σ_{j≠k} cov_w(z_j, z_k)² with respect to the weights, up to a
    constant.

    ``mapped`` has the shape (functions, n, p), the weights sum to 1. With x_i the mapped features
    of a sample less their weighted mean and C the weighted covariance, it is 2 (x_iᵀ C x_i − Σ_j
    C_jj x_ij²); the constant does not pass a softmax. x_iᵀ C x_i is also Σ_k w_k (x_iᵀ x_k)², which
    is cheaper for fewer samples than features.
    """
    centred = mapped - (weights @ mapped)[:, None]
    squares = centred.square()
    if mapped.shape[1] <= mapped.shape[2]:
        all_pairs = (centred @ centred.mT).square() @ weights
    else:
        covariance = centred.mT @ (centred * weights[:, None])
        all_pairs = torch.linalg.vecdot(centred @ covariance, centred)
    same = (squares @ (weights @ squares)[:, :, None])[:, :, 0]
    return 2 * (all_pairs - same).sum(0)
