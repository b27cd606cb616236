"""PFDL on tables, as the paper describes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pfdl._internal.fitting import all_or_nothing
from pfdl.decorrelation.decomposition import FeatureDecomposition
from pfdl.decorrelation.functional import decomposition_loss
from pfdl.tabular.validation import check_rows, check_table
from pfdl.tabular.weights import LinearRegressorBase, least_squares

FloatArray = NDArray[np.float64]

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, fused=True),  # one call for all parameters of a small network
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
_SMALL, _MOST_ELEMENTS = 2**22, 2**24
_ROWS_AT_A_TIME = 4096
_WORTH_A_WORD = 2.0


class PFDLRegressor(LinearRegressorBase):
    """Linear regression with the output of the feature decomposition network as auxiliary features.

    This is the paper's experiment on tables: one shared network g learns to predict each column from the others, its
    output g(X) joins X as p further columns, and a least-squares fit on [X, g(X)] gives the coefficients. ``coef_`` are
    those of X, which the paper compares with the true ones. The paper gives the learning rate (0.001) and the most
    iterations (5,000). It leaves open: the sizes of g, the batches (Algorithm 1 traverses the data in mini-batches; the
    iterations of DWR, whose number it takes over, see all rows), which stochastic optimiser, whether the columns are
    standardised for g (here they are), and what of DWR's estimator beyond its least squares is meant by "same as DWR"
    (here: no weights, the closed form).

    A shared g does not know which column it predicts, so g(X) says little, and the coefficients stay close to those of
    least squares: the paper's figures are not reproduced by this reading.

    An iteration takes about a millisecond on one core with 16 columns, and in proportion with more, whatever the number
    of rows: the default is a matter of seconds.

    Args:
        hidden: Widths of the hidden layers of g.
        learning_rate: Learning rate of g.
        max_iter: Iterations of g.
        batch_size: Rows per iteration; None for all of them.
        optimizer: ``"adam"``, ``"rmsprop"`` or ``"sgd"``.
        fit_intercept: Whether to fit an intercept.
        random_state: Seed of g and of its batches.
        verbose: Whether to show on stderr how far the training is and how long it will take; ``"auto"``: if that is a
            terminal and it takes more than two seconds.

    Attributes:
        coef_: Coefficients of the columns of X, of shape (n_features,).
        auxiliary_coef_: Coefficients of g(X), of shape (n_features,); empty with one column, which has no others.
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

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (64,),
        learning_rate: float = 0.001,
        max_iter: int = 5000,
        batch_size: int | None = 128,
        optimizer: Literal["adam", "rmsprop", "sgd"] = "adam",
        fit_intercept: bool = True,
        random_state: int | RandomState | None = None,
        verbose: bool | Literal["auto"] = "auto",
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> PFDLRegressor:
        """Fit to columns X of shape (n, p) and a numeric label y of shape (n,)."""
        self._check_parameters()
        X, y = check_table(self, X, y, numeric_y=True)
        p = X.shape[1]
        features = X
        self.decomposition_ = None
        self.loss_, self.n_iter_ = float("nan"), self.max_iter
        if p > 1:
            self._scaler = StandardScaler().fit(X)
            self.decomposition_, self.loss_ = self._train(self._scaler.transform(X).astype(np.float32))
            features = self._with_auxiliary(X)
        coefficients, self.intercept_ = least_squares(features, y, fit_intercept=self.fit_intercept)
        self.coef_, self.auxiliary_coef_ = coefficients[:p], coefficients[p:]
        return self

    def _train(self, table: NDArray[np.float32]) -> tuple[FeatureDecomposition, float]:
        """Train the shared g on all rows. Returns it in double precision, and the loss of the last iteration."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rng, rows, features = np.random.default_rng(seed), len(table), torch.from_numpy(table)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            g = FeatureDecomposition(table.shape[1], self.hidden, sharing="strict")
        optimizer = _OPTIMIZERS[self.optimizer](g.parameters(), lr=self.learning_rate)
        size = rows if self.batch_size is None else min(self.batch_size, rows)
        order = torch.from_numpy(rng.permutation(rows))
        start, loss = 0, torch.zeros(())
        with _one_thread(small=size * table.shape[1] * max(self.hidden) < _SMALL):
            for _ in _shown(self.max_iter, "PFDLRegressor", self.verbose):
                if start + size > rows:  # the table has been traversed
                    order, start = torch.from_numpy(rng.permutation(rows)), 0
                loss = set_gradients(g, features[order[start : start + size]])
                optimizer.step()
                start += size
        return g.double().eval(), float(loss)

    def predict(self, X: Any) -> FloatArray:
        """Predict y for the rows of X."""
        check_is_fitted(self)
        features = self._with_auxiliary(check_rows(self, X))
        predicted: FloatArray = features @ np.append(self.coef_, self.auxiliary_coef_) + self.intercept_
        return predicted

    def _with_auxiliary(self, X: FloatArray) -> FloatArray:
        if self.decomposition_ is None:
            return X
        parts = []
        with torch.no_grad():
            for start in range(0, len(X), _ROWS_AT_A_TIME):
                rows = self._scaler.transform(X[start : start + _ROWS_AT_A_TIME])
                parts.append(self.decomposition_(torch.from_numpy(rows)).numpy())
        return np.hstack([X, np.concatenate(parts)])

    def _check_parameters(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be positive.")
        for name in ("max_iter", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1.")
        if self.optimizer not in _OPTIMIZERS:
            raise ValueError(f"optimizer is {self.optimizer!r}; choose {', '.join(map(repr, _OPTIMIZERS))}.")


def set_gradients(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Give every parameter of a strict g the gradient of ``decomposition_loss(features, g(features))``.

    A mini-batch of a table is small: n·p·h numbers fit the cache of a core, and a step of training takes as long as the
    calls it makes. So where g has one hidden layer, the pre-activations are made once, kept, and turned into their own
    gradients in place, without autograd. Returns the loss.
    """
    if len(g.hidden) == 1 and features.numel() * g.hidden[0] <= _MOST_ELEMENTS:
        return _one_hidden(g, features)
    loss = decomposition_loss(features, g(features))
    g.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


@torch.no_grad()
def _one_hidden(g: FeatureDecomposition, features: Tensor) -> Tensor:
    """Walk along the features: from leaving out j to leaving out j + 1, one input of the first layer changes.

    The input at place j is then feature j, before it was feature j + 1; so the pre-activations move by
    (x_j − x_{j+1})·w_j, and back along the same path their gradients add up.
    """
    readout = g.layers[0]
    assert isinstance(readout, nn.Linear)
    n, p = features.shape
    columns = features.T.contiguous()
    moves = (columns[:-1] - columns[1:])[:, :, None]
    weight, slope = g.first_weight.T.contiguous(), readout.weight[0]
    hidden = features.new_empty(p, n, len(slope))
    places = hidden.unbind()
    torch.addmm(g.first_bias, features[:, 1:], weight, out=places[0])
    for j, (move, row) in enumerate(zip(moves.unbind(), weight.unbind(), strict=True)):
        torch.addcmul(places[j], move, row, out=places[j + 1])
    flat = hidden.relu_().view(p * n, -1)
    residual = torch.addmv(readout.bias, flat, slope) - columns.view(-1)
    loss = residual.square().mean()
    residual *= 2.0 / residual.numel()
    readout.weight.grad, readout.bias.grad = (residual @ flat)[None], residual.sum()[None]
    flat.sign_().mul_(slope).mul_(residual[:, None])
    for later, earlier in zip(places[:0:-1], places[-2::-1], strict=True):
        earlier += later
    g.first_bias.grad = places[0].sum(0)
    g.first_weight.grad = places[0].T @ features[:, 1:] + torch.bmm(moves.transpose(1, 2), hidden[1:])[:, 0].T
    return loss


@contextmanager
def _one_thread(*, small: bool) -> Iterator[None]:
    """Let PyTorch compute on one thread, where operations take microseconds and waking others takes longer."""
    threads = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _shown(iterations: int, name: str, verbose: bool | str) -> Iterator[int]:
    """Count iterations, and show about every second how many are done and how long the rest will take."""
    show = sys.stderr.isatty() if verbose == "auto" else bool(verbose)
    start = last = time.monotonic()
    shown = False
    for done in range(iterations):
        yield done
        if not show or time.monotonic() - last < 1.0:
            continue
        last = time.monotonic()
        left = (last - start) * (iterations - done - 1) / (done + 1)
        if shown or left + last - start > _WORTH_A_WORD:
            sys.stderr.write(f"\r{name}: {done + 1:,} of {iterations:,} iterations, {left:.0f} s left  ")
            sys.stderr.flush()
            shown = True
    if shown:
        sys.stderr.write("\n")
