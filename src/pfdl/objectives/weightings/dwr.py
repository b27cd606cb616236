"""Decorrelated Weighting Regression: its loss, its solvers, and its weights on all samples or on
each batch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from pfdl._internal.collapse import describe_collapse
from pfdl._internal.cuda_graphs import may_look
from pfdl._internal.validation import check_count, check_matrix, check_number, describe_non_finite
from pfdl.objectives.base import Weighting

# The constants of the published code: factors of the three terms, and of TensorFlow's RMSProp.
_BALANCE = 2000.0
_SUM = 0.0005
_SIZE = 0.00005
_RMSPROP_DECAY = 0.9
_EPSILON = 1e-10


class DWR(Weighting):
    r"""Learn one weight per training sample that decorrelates all features of all samples (Kuang et
    al., 2020).

    The weights w = G∘G start at 1 and minimise

    .. math::
        \frac{2000}{p} \sum_j \Big\| \tfrac1n w^\top (X_j \circ X^{(-j)})
        - \tfrac{w^\top X_j}{\sum w} \tfrac1n w^\top X^{(-j)} \Big\|_2
        + 0.0005 \big(\textstyle\sum w - n\big)^2 + 0.00005 \sum w^2.

    This is the published first stage, on the features of a network instead of the columns of a
    table, each centred and scaled to variance 1, as the columns of the published data are: the loss
    has a scale. Call :meth:`fit` with the features of all training samples, before training if they
    are fixed, or before each epoch, and give the objective the ``indices`` of each batch's samples.
    :class:`pfdl.tabular.DWRRegressor` is the published regression; :class:`BatchDWR` needs neither
    call nor indices and is an adaptation. Costs O(n·p²) a step.

    The loss is 0.0005·n² at weights of zero, and a tenth of that with all weight on one sample.
    Where decorrelating costs more, as it can on a network's features, solvers can end there:
    :meth:`fit` warns, once while that lasts. The metrics ``mean_weight``, before it is made 1, and
    ``effective_share_of_all`` show it, those of a batch do not.

    Args:
        steps: Most steps of L-BFGS; published are 5,000 of RMSProp.
        tol: Stop when the loss changes by no more than this from one step to the next, as
            published.

    Example:
        >>> import torch
        >>> x = (
        ...     torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        ...     @ torch.ones(4, 4).tril()
        ... )
        >>> dwr = DWR()
        >>> dwr.fit(x)
        >>> dwr(torch.tensor([3, 17])).shape
        torch.Size([2])
    """

    needs = ("indices",)
    reference = "Kuang et al., 2020"
    sized_by_data = ("sample_weights",)
    sample_weights: Tensor

    def __init__(self, *, steps: int = 500, tol: float = 1e-8) -> None:
        super().__init__()
        check_count("steps", steps, 0)
        check_number("tol", tol)
        self.steps = steps
        self.tol = tol
        self._has_collapsed = False
        self.register_buffer("sample_weights", torch.zeros(0))

    def fit(self, features: Tensor) -> None:
        """Learn the weights from the features of all training samples, shape (n, p), in the order
        of their indices.

        Raises:
            ValueError: If the features are not finite or the weights diverge; nothing has changed
                then.
        """
        check_matrix("features", features)
        if problem := describe_non_finite("features", features.detach()):
            raise ValueError(problem)
        exact = features.detach().double()
        centred = exact - exact.mean(0)
        scale = centred.square().mean(0).sqrt()
        columns = centred / torch.where(scale > 0, scale, 1.0)
        weights = self.solve(columns.float())
        if problem := describe_non_finite("the weights of DWR", weights[None]):
            raise ValueError(problem)
        self.sample_weights = weights
        self._of_mean_one()
        self._warn_of_collapse(*features.shape)

    def solve(self, columns: Tensor) -> Tensor:
        """Return the weights of standardised columns, shape (n, p); a subclass may solve in another
        way.
        """
        return decorrelating_weights_by_lbfgs(columns, steps=self.steps, tol=self.tol).weights

    def recording_key(self) -> Hashable:
        """Return where the weights lie, which every fit makes again."""
        return self.sample_weights.data_ptr()

    def forward(self, indices: Tensor) -> Tensor:
        """Return the weights of the samples with these numbers, shape (n,); their mean over all
        samples is 1.
        """
        if not isinstance(indices, Tensor) or indices.dim() != 1 or indices.is_floating_point():
            raise ValueError(
                "indices are not one whole number per sample; give a tensor of shape (n,)."
            )
        known = len(self.sample_weights)
        if len(indices) and may_look():
            first = int(indices.min())
            last = int(indices.max())
            if first < 0 or last >= known:
                raise ValueError(
                    f"indices go from {first} to {last} and DWR has weights of {known} samples;"
                    " call fit(features) with the features of all training samples first."
                )
        weights = self._of_mean_one()[indices]
        self.finish(weights)  # notes the effective sample size
        return weights

    def check_loaded(self) -> None:
        """Refuse weights that are negative or all zero."""
        if not len(self.sample_weights):
            return
        if bool((self.sample_weights < 0).any()) or not float(self.sample_weights.sum()):
            raise ValueError(
                "sample_weights in the state are negative or all zero; they are one weight per"
                " sample."
            )

    def _warn_of_collapse(self, n: int, p: int) -> None:
        """Warn where the weights of all samples fell to zero or on few of them, once while that
        lasts.
        """
        mean = float(self.learnt["mean_weight"])
        share = float(self.learnt["effective_share_of_all"])
        problem = describe_collapse(mean, n * share, n)
        is_new = problem is not None and not self._has_collapsed
        self._has_collapsed = problem is not None
        if is_new:
            warnings.warn(
                f"the weights of DWR {problem}. This happens where there are few samples for the"
                f" features (here {n} for {p}) or these are strongly correlated. Use fewer"
                " features, such as a narrower embedding, more samples, or another objective.",
                stacklevel=3,
            )

    def _of_mean_one(self) -> Tensor:
        """Return the weights of all samples with a mean of 1, and note what is logged of them."""
        mean = self.sample_weights.mean()
        weights = self.sample_weights / mean
        self.learnt = {"mean_weight": mean, "effective_share_of_all": 1.0 / weights.square().mean()}
        return weights


class BatchDWR(Weighting):
    """Take a few steps of DWR on the features of each batch: an adaptation, not the published
    method.

    The loss is that of :class:`DWR`, the solver the published RMSProp (decay 0.9, learning rate
    0.005). That every batch starts again from equal weights, and that it takes 20 steps, is ours:
    the published method takes up to 5,000 on all samples at once. On few samples for many features
    all weights fall towards zero, as those of :class:`DWR` do: in 20 steps of 0.005 alike, so that
    they stay equal; with more or larger steps unlike, near zero. Read the metric ``mean_weight``,
    before it is made 1. Costs O(n·p·min(n, p)) a step.

    Args:
        steps: Steps of RMSProp for each batch.
        learning_rate: The size of these steps.
    """

    reference = "adapted from Kuang et al., 2020"

    def __init__(self, *, steps: int = 20, learning_rate: float = 0.005) -> None:
        super().__init__()
        check_count("steps", steps, 0)
        check_number("learning_rate", learning_rate)
        self.steps = steps
        self.learning_rate = learning_rate

    def recording_key(self) -> Hashable:
        """Return the settings of the solver."""
        return (self.steps, self.learning_rate)

    def forward(self, features: Tensor) -> Tensor:
        """Learn the weights of a batch of features, shape (n, p)."""
        check_matrix("features", features)
        settings = (self.steps, self.learning_rate)
        (weights,) = self.captured.run(self._learn, [features.detach().float()], settings)
        self.learnt = {"mean_weight": weights.mean()}
        return self.finish(weights)

    def _learn(self, x: Tensor) -> list[Tensor]:
        learnt = decorrelating_weights(x, steps=self.steps, learning_rate=self.learning_rate)
        return [learnt.weights]


class LearntWeights(NamedTuple):
    """Weights of the samples, the loss that the solver saw last, and the steps taken."""

    weights: Tensor
    loss: float
    steps: int


def decorrelating_weights(
    x: Tensor, *, steps: int, learning_rate: float = 0.005, tol: float | None = None
) -> LearntWeights:
    """Minimise DWR's loss over sample weights w = G∘G, from G = 1, with the published solver.

    That is TensorFlow 1's RMSProp: decay 0.9, mean square 1 at the start.

    Args:
        x: Features or columns, shape (n, p), without gradient.
        steps: Most steps.
        learning_rate: Learning rate.
        tol: Stop when the loss changes by no more than this from one step to the next.
    """
    root = x.new_ones(len(x))
    mean_square = torch.ones_like(root)
    previous = math.inf
    loss = math.inf
    taken = 0
    with torch.no_grad():
        while taken < steps:
            taken += 1
            value, gradient = dwr_loss_and_gradient(x, root.square())
            gradient.mul_(2.0 * root)
            mean_square.lerp_(gradient.square(), 1.0 - _RMSPROP_DECAY)
            root.addcdiv_(gradient, (mean_square + _EPSILON).sqrt(), value=-learning_rate)
            if tol is None:
                continue  # reading the loss would wait for a GPU
            loss = float(value)
            if abs(previous - loss) <= tol:
                break
            previous = loss
    return LearntWeights(root.square(), loss, taken)


def decorrelating_weights_by_lbfgs(x: Tensor, *, steps: int, tol: float) -> LearntWeights:
    """Minimise the same loss from the same start with L-BFGS, which needs far fewer steps on a
    whole table.

    The term (Σw − n)² grows with n² while what decorrelates a row's columns falls with 1/n. Steps
    of one size for all directions, as of RMSProp and Adam, then oscillate along Σw; L-BFGS learns
    how steep each direction is.

    Args:
        x: Features or columns, shape (n, p), without gradient.
        steps: Most steps; most of them evaluate loss and gradient once.
        tol: Stop when the loss changes by no more than this from one step to the next.
    """
    root = x.new_ones(len(x)).requires_grad_()
    solver = torch.optim.LBFGS(
        [root],
        max_iter=steps,
        max_eval=10 * steps,
        history_size=10,
        tolerance_grad=0.0,
        tolerance_change=tol,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def evaluate() -> Tensor:
        value, gradient = dwr_loss_and_gradient(x, root.square())
        root.grad = 2.0 * root * gradient
        return value

    solver.step(evaluate)  # type: ignore[no-untyped-call]
    weights = root.detach().square()
    loss, _ = dwr_loss_and_gradient(x, weights)
    return LearntWeights(weights, float(loss), int(solver.state[root]["n_iter"]))


def dwr_loss_and_gradient(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return DWR's loss and its gradient with respect to the weights, in closed form.

    With C the weighted covariance without its diagonal and D its rows scaled to length 2000/p, the
    first term has the derivative (x_i − m)ᵀ D (x_i − m) / n, m being the weighted mean. Keeps
    nothing for a backward pass, and costs O(n·p·min(n, p)).
    """
    n, p = x.shape
    excess = weights.sum() - n
    rows = _by_samples(x, weights) if n < p else _by_features(x, weights)
    of_balance = _BALANCE / p * rows.lengths.sum()
    of_sum = _SUM * excess.square()
    of_size = _SIZE * weights.square().sum()
    gradient = rows.quadratic / n + 2.0 * _SUM * excess + 2.0 * _SIZE * weights
    return of_balance + of_sum + of_size, gradient


class _Rows(NamedTuple):
    """What loss and gradient need of the rows of C.

    Attributes:
        lengths: Of each row, shape (p,).
        quadratic: (x_i − m)ᵀ D (x_i − m) of each sample, shape (n,).
    """

    lengths: Tensor
    quadratic: Tensor


def _by_features(x: Tensor, weights: Tensor) -> _Rows:
    """Compute with p × p matrices, without a copy of x."""
    n, p = x.shape
    mean = x.T @ weights / weights.sum()
    weighted = x * weights[:, None]
    covariance = x.T @ weighted / n - torch.outer(mean, weighted.mean(0))
    covariance = covariance - covariance.diagonal().diag_embed()
    lengths = _root(covariance.square().sum(1))
    direction = covariance * (_BALANCE / p / lengths)[:, None]
    # The quadratic form of x_i − m, term by term
    of_x = torch.einsum("ij,ij->i", x @ direction, x)
    mixed = x @ ((direction + direction.T) @ mean)
    of_mean = mean @ direction @ mean
    return _Rows(lengths, of_x - mixed + of_mean)


def _by_samples(x: Tensor, weights: Tensor) -> _Rows:
    """Compute with n × n matrices, for a batch of fewer samples than features."""
    n, p = x.shape
    centred = x - weights @ x / weights.sum()
    weighted = centred * weights[:, None]
    products = centred @ centred.T
    diagonal = (weighted * centred).sum(0) / n
    of_whole_rows = (weighted * (products @ weighted)).sum(0) / n**2
    lengths = _root(of_whole_rows - diagonal.square())
    scaled = centred * (_BALANCE / p / lengths)
    of_whole = (products * (scaled @ centred.T)) @ weights / n
    of_diagonal = (scaled * centred) @ diagonal
    return _Rows(lengths, of_whole - of_diagonal)


def _root(squares: Tensor) -> Tensor:
    """Return the square roots, of which none is zero: they are divided by."""
    return squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
