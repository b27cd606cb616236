"""PFDL on tables, as the paper describes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.functional import decomposition_loss
from pfdl.tabular.moments import FloatArray
from pfdl.tabular.validation import Parameter, check_rows, count, number_from_zero
from pfdl.tabular.weights import LinearRegressorBase, least_squares

_SMALL = 2**22
_MOST_ELEMENTS = 2**24
_SECONDS_BETWEEN_WORDS = 2.0


class PFDLRegressor(LinearRegressorBase):
    """Linear regression with the output of the feature decomposition network as auxiliary features.

    This is the paper's experiment on tables: one shared network g learns to predict each column
    from the others, its output g(X) joins X as p further columns, and a least-squares fit on [X,
    g(X)] gives the coefficients. ``coef_`` are those of X, which the paper compares with the true
    ones. The paper gives the learning rate (0.001) and the most iterations (5,000). It leaves open:
    the sizes of g, the batches (Algorithm 1 traverses the data in mini-batches; the iterations of
    DWR, whose number it takes over, see all rows), which stochastic optimiser (here Adam), whether
    the columns are standardised for g (here they are), and what of DWR's estimator beyond its least
    squares is meant by "same as DWR" (here: no weights, the closed form).

    A shared g does not know which column it predicts, so g(X) says little, and the coefficients
    stay close to those of least squares: the paper's figures are not reproduced by this reading.

    An iteration takes less than a millisecond on one core with 16 columns, and in proportion with
    more, whatever the number of rows: the default is a matter of seconds, and on a terminal ``fit``
    shows how far it is.

    Args:
        hidden: Widths of the hidden layers of g.
        learning_rate: Learning rate of g.
        max_iter: Iterations of g.
        batch_size: Rows per iteration; None for all of them.
        random_state: Seed of g and of its batches.

    Attributes:
        coef_: Coefficients of the columns of X, of shape (n_features,).
        auxiliary_coef_: Coefficients of g(X), of shape (n_features,); empty with one column, which
            has no others.
        intercept_: Intercept.
        decomposition_: The network g, or None with one column.
        loss_: Loss of g in its last iteration.
        n_iter_: Iterations of g.
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl.tabular import PFDLRegressor
        >>> data = make_mmads(200, 10, 1.7, seed=0)
        >>> model = PFDLRegressor(max_iter=20, random_state=0).fit(data.X, data.y)
        >>> model.coef_.shape, model.auxiliary_coef_.shape
        ((10,), (10,))
    """

    _parameters: ClassVar[Mapping[str, Parameter]] = {
        "learning_rate": number_from_zero(or_zero=False),
        "max_iter": count(),
        "batch_size": count(or_none=True),
    }

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (64,),
        learning_rate: float = 0.001,
        max_iter: int = 5000,
        batch_size: int | None = 128,
        random_state: int | RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray) -> None:
        p = X.shape[1]
        features = X
        self.decomposition_ = None
        self.loss_ = float("nan")
        self.n_iter_ = self.max_iter
        if p > 1:
            self._scaler = StandardScaler().fit(X)
            self.decomposition_, self.loss_ = self._train(
                self._scaler.transform(X).astype(np.float32)
            )
            features = self._with_auxiliary(X)
        coefficients, self.intercept_ = least_squares(features, y)
        self.coef_ = coefficients[:p]
        self.auxiliary_coef_ = coefficients[p:]

    def _train(self, table: NDArray[np.float32]) -> tuple[FeatureDecomposition, float]:
        """Train the shared g on all rows. Returns it in double precision, and the loss of the last
        iteration.
        """
        rows, p = table.shape
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            g = FeatureDecomposition(p, self.hidden, sharing="strict")
        # Fused: one call for all parameters of a small network.
        optimizer = torch.optim.Adam(g.parameters(), lr=self.learning_rate, fused=True)
        size = rows if self.batch_size is None else min(self.batch_size, rows)
        batches = _batches(torch.from_numpy(table), size, np.random.default_rng(seed))
        elements = size * p * max(g.hidden, default=1)
        has_closed_form = len(g.hidden) == 1 and elements <= _MOST_ELEMENTS
        set_gradients = _set_gradients if has_closed_form else _set_gradients_by_autograd
        with _one_thread(small=elements < _SMALL):
            for _ in _shown(self.max_iter):
                loss = set_gradients(g, next(batches))
                optimizer.step()
        return g.double().eval(), float(loss)

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        features = self._with_auxiliary(check_rows(self, X))
        predicted: FloatArray = (
            features @ np.append(self.coef_, self.auxiliary_coef_) + self.intercept_
        )
        return predicted

    def _with_auxiliary(self, X: FloatArray) -> FloatArray:
        if self.decomposition_ is None:
            return X
        with torch.no_grad():
            auxiliary = self.decomposition_(torch.from_numpy(self._scaler.transform(X)))
        return np.hstack([X, auxiliary.numpy()])


def _batches(table: Tensor, size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Yield so many rows at a time without end; the table is traversed in a new order each time."""
    while True:
        order = torch.from_numpy(rng.permutation(len(table)))
        for start in range(0, len(table) - size + 1, size):
            yield table[order[start : start + size]]


def _set_gradients_by_autograd(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Give every parameter of g the gradient of its loss on some rows, and return the loss."""
    loss = decomposition_loss(features, g(features))
    g.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


@torch.no_grad()
def _set_gradients(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Do the same for a strict g with one hidden layer, in half of the time or less.

    A mini-batch of a table fits the cache of a core, and a step takes as long as the calls it
    makes. So all pre-activations, shape (p, n, h), are made once and turned into their own
    gradients in place. From leaving out feature j to leaving out j + 1 one input of the first layer
    changes: at place j stands feature j, before it was j + 1. So the pre-activations move by (x_j −
    x_{j+1})·w_j, and back along the same path their gradients add up.
    """
    readout = g.layers[0]
    assert isinstance(readout, nn.Linear)
    n, p = features.shape
    columns = features.T.contiguous()
    moves = (columns[:-1] - columns[1:])[:, :, None]
    weight = g.first_weight.T.contiguous()
    slope = readout.weight[0]
    hidden = features.new_empty(p, n, len(slope))
    places = hidden.unbind()
    torch.addmm(g.first_bias, features[:, 1:], weight, out=places[0])
    for j, (move, row) in enumerate(zip(moves.unbind(), weight.unbind(), strict=True)):
        torch.addcmul(places[j], move, row, out=places[j + 1])
    flat = hidden.relu_().view(p * n, -1)
    residual = torch.addmv(readout.bias, flat, slope) - columns.view(-1)
    loss = residual.square().mean()
    residual *= 2.0 / residual.numel()
    readout.weight.grad = (residual @ flat)[None]
    readout.bias.grad = residual.sum()[None]
    flat.sign_().mul_(slope).mul_(residual[:, None])
    for later, earlier in zip(places[:0:-1], places[-2::-1], strict=True):
        earlier += later
    g.first_bias.grad = places[0].sum(0)
    g.first_weight.grad = (
        places[0].T @ features[:, 1:] + torch.bmm(moves.transpose(1, 2), hidden[1:])[:, 0].T
    )
    return loss


@contextmanager
def _one_thread(*, small: bool) -> Iterator[None]:
    """Let PyTorch compute on one thread, where operations take microseconds and waking others takes
    longer.
    """
    threads = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _shown(iterations: int) -> Iterator[int]:
    """Count iterations; on a terminal show every two seconds how many are done, and how long the
    rest will take.
    """
    start = last = time.monotonic()
    for done in range(1, iterations + 1):
        yield done
        now = time.monotonic()
        if sys.stderr.isatty() and now - last > _SECONDS_BETWEEN_WORDS:
            last = now
            left = (now - start) * (iterations / done - 1)
            sys.stderr.write(
                f"\rPFDLRegressor: {done:,} of {iterations:,} iterations, {left:.0f} s left  "
            )
            sys.stderr.flush()
    if last > start:
        sys.stderr.write("\n")
