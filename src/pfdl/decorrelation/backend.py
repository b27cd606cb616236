"""Where and how the two steps run: which kernels, whether from a CUDA graph, and what keeps them finite."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from pfdl._internal.cuda_graphs import Captured
from pfdl.decorrelation.cuda_graphs import run_steps
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.finiteness import FiniteGuard, Finiteness, Unchecked, WaitingCheck
from pfdl.decorrelation.steps import Algorithm, Fitted, Penalised, Steps, with_gradient


class StepBackend:
    """Runs the steps of one penalty. A copy of it starts afresh.

    Attributes:
        lock: Held during a call, so that threads which share a penalty take turns.
        guard: What keeps updates finite where nothing waits for the GPU.
        captures: Whether both steps may become one CUDA graph where that is possible.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.guard = FiniteGuard()
        self.captures = True
        self._captured = Captured()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepBackend:
        return StepBackend()

    def __reduce__(self) -> tuple[type[StepBackend], tuple[()]]:
        return StepBackend, ()

    def finiteness(self, algorithm: Algorithm, check: bool, device: torch.device) -> Finiteness:
        """Return what keeps updates finite on this device."""
        if not check:
            return Unchecked()
        return self.guard if device.type == "cuda" and FiniteGuard.serves(algorithm.optimizer) else WaitingCheck()

    def begin(self, algorithm: Algorithm, u: Tensor, batch: Batch, finiteness: Finiteness, both: bool) -> Steps:
        """Return the steps on a batch of features.

        Args:
            algorithm: What to compute.
            u: The features, in the dtype of g's parameters.
            batch: Who takes part.
            finiteness: What :meth:`finiteness` returned.
            both: Whether step 1 will be run and then step 2; then they may be one CUDA graph.
        """
        kernels = algorithm.decomposition.backend(u.device, len(u))
        steps = Steps(algorithm, u, batch, kernels, finiteness)
        graph_fits = (
            self.captures
            and both
            and u.is_cuda
            and u.requires_grad
            and torch.is_grad_enabled()
            and finiteness is self.guard
            and batch.processes == 1
            and algorithm.form == "paper"
            and kernels is not None
            and not torch.cuda.is_current_stream_capturing()
        )
        return _BothCaptured(steps, self._captured) if graph_fits else steps


class _BothCaptured(Steps):
    """Both steps as one CUDA graph once there is one: step 1 runs it, step 2 hands out what it found."""

    def __init__(self, steps: Steps, captured: Captured) -> None:
        super().__init__(steps.algorithm, steps.u, steps.batch, steps.kernels, steps.finiteness)
        self._captured = captured
        self._found: list[Tensor] = []

    def fit(self) -> Fitted:
        algorithm = self.algorithm
        settings = (algorithm.fit_steps, algorithm.center, algorithm.decomposition.sharing)
        results = run_steps(self._captured, self._both, self.u.detach(), algorithm.optimizer, settings)
        unexplained, variance, *self._found = results
        return Fitted(unexplained, variance)

    def penalise(self, weight: float) -> Penalised:
        gradient, loss, sums = self._found
        return Penalised(with_gradient(self.u, loss, gradient, weight), loss, sums)

    def _both(self, u: Tensor) -> list[Tensor]:
        steps = Steps(self.algorithm, u, self.batch, self.kernels, self.finiteness)
        fitted = steps.fit()
        loss, sums, gradient = steps.penalty_and_gradient(True)
        assert sums is not None  # the paper's form has them
        assert gradient is not None
        return [*fitted, gradient, loss, sums]
