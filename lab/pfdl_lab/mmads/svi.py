"""SVI: sparse variable independence."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from pfdl.tabular.moments import FloatArray, effective_rows, standardised
from pfdl.tabular.weights import LinearRegressorBase, least_squares

# The constants of the published code.
_BALANCE, _SUM, _SIZE, _TINY = 2000.0, 0.5, 0.00005, 1e-10
_NOISE, _RATE_OF_SLOPES, _RATE_OF_GATES = 0.1, 0.001, 0.0003
_LEAST_PROBABILITY, _ROUNDS_AVERAGED = 0.2, 3


class SVIRegressor(LinearRegressorBase):
    """Least squares on columns chosen under weights that decorrelate them, in turns.

    Yu et al., "Stable Learning via Sparse Variable Independence", AAAI 2023: the successor of DWR.
    Weights of the rows decorrelate the columns; under them stochastic gates choose columns (a
    linear regression in which every column has a gate and the squared number of open ones is
    penalised); then the columns that are likely to be chosen need no longer be decorrelated from
    each other, which leaves the weights more rows, and both are learnt again. In the end ordinary
    least squares is fitted to the chosen columns.

    The published code is the measure: its loss of the weights, its gates, learning rates, rounds
    and thresholds, with these differences. Columns and y are standardised, so that units do not
    matter; the penalty is in units of the variance of y. The weights are found with L-BFGS instead
    of 20,000 steps of Adam. The gates see the table through its weighted moments, which is exact,
    and start from least squares, to which the published code trains its start. An intercept is
    fitted.

    Args:
        penalty: Weight of the squared expected number of open gates. The published 3 in units of y²
            is about 4.5 times the variance of y on the paper's synthetic tables.
        rounds: Turns of weighting and choosing; 1 is the variant that the authors call SVI^d.
        gate_steps: Steps of Adam in which the gates are learnt, per round.
        random_state: Seed of the noise of the gates.

    Attributes:
        coef_: Coefficients, of shape (n_features,); 0 for columns that were not chosen.
        intercept_: Intercept.
        probability_: How likely each column is to be chosen: the mean over the last three rounds.
        kept_: Mask of the columns that were chosen, with a probability above 0.2.
        sample_weight_: The weights of the last round, with mean 1.
        effective_sample_size_: (Σw)² / Σw².
        n_features_in_: Number of columns seen in ``fit``.
        feature_names_in_: Their names, if X had any.

    Examples:
        >>> from pfdl.data import make_mmads
        >>> from pfdl_lab.mmads.svi import SVIRegressor
        >>> data = make_mmads(1000, 10, 1.7, seed=1)
        >>> model = SVIRegressor(rounds=1, random_state=0).fit(data.X, data.y)
        >>> model.kept_[data.stable].all().item()
        True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "penalty": [Interval(Real, 0, None, closed="left")],
        "rounds": [Interval(Integral, 1, None, closed="left")],
        "gate_steps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        penalty: float = 4.5,
        rounds: int = 10,
        gate_steps: int = 5000,
        random_state: int | RandomState | None = None,
    ) -> None:
        self.penalty = penalty
        self.rounds = rounds
        self.gate_steps = gate_steps
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray) -> None:
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        columns, label = standardised(X), standardised(y)
        recent: list[FloatArray] = []
        self.probability_ = np.zeros(X.shape[1])
        for _ in range(self.rounds):
            weight = decorrelating_weights(
                columns, 1.0 - np.outer(self.probability_, self.probability_)
            )
            gates = gate_probabilities(columns, label, weight, self.penalty, self.gate_steps, rng)
            recent = [*recent[-_ROUNDS_AVERAGED + 1 :], gates]
            self.probability_ = np.mean(recent, axis=0)
        self.sample_weight_ = weight / weight.mean()
        self.effective_sample_size_ = effective_rows(self.sample_weight_)
        self.kept_ = self.probability_ > _LEAST_PROBABILITY
        self.coef_, self.intercept_ = np.zeros(X.shape[1]), float(y.mean())
        if self.kept_.any():
            self.coef_[self.kept_], self.intercept_ = least_squares(X[:, self.kept_], y)


def decorrelating_weights(X: FloatArray, pairs: FloatArray) -> FloatArray:
    """Return the weights w = G∘G that minimise, from G = 1, the published loss of the weights.

    That is (2000/p) Σ_j √(Σ_{k≠j} pairs_jk C_jk²) + 0.5 (Σw − n)² + 0.00005 Σw², C being the
    weighted covariance, and pairs_jk how much two columns are to be decorrelated.
    """
    root = np.ones(len(X))
    solved = minimize(
        _loss_and_gradient,
        root,
        args=(X, pairs),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500},
    )
    weight: FloatArray = solved.x**2
    return weight


def _loss_and_gradient(
    root: FloatArray, X: FloatArray, pairs: FloatArray
) -> tuple[float, FloatArray]:
    n, p = X.shape
    weight = root**2
    mean = weight @ X / n
    covariance = X.T @ (X * weight[:, None]) / n - np.outer(mean, mean)
    np.fill_diagonal(covariance, 0.0)
    lengths = np.sqrt((pairs * covariance**2).sum(axis=1) + _TINY)
    direction = _BALANCE / p * pairs * covariance / lengths[:, None]
    excess = weight.sum() - n
    loss = _BALANCE / p * lengths.sum() + _SUM * excess**2 + _SIZE * weight @ weight
    slope = ((X @ direction) * X).sum(axis=1) - X @ ((direction + direction.T) @ mean)
    gradient: FloatArray = 2.0 * root * (slope / n + 2.0 * _SUM * excess + 2.0 * _SIZE * weight)
    return float(loss), gradient


def gate_probabilities(
    X: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    penalty: float,
    steps: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Learn stochastic gates on the columns of a weighted linear regression; return how likely each
    is to be open.

    A gate is μ + 0.5 + 0.1·noise, clipped to [0, 1], the noise drawn again in every step; it is
    open with probability Φ((μ + 0.5)/0.1). Adam minimises the weighted squared error plus
    ``penalty`` times the squared sum of the probabilities. All rows share the noise, so the
    weighted moments of the table are all that is needed of it.
    """
    share = weight / weight.sum()
    products, across = X.T @ (X * share[:, None]), X.T @ (share * y)
    slopes, centre = np.linalg.lstsq(X, y, rcond=None)[0], np.zeros(X.shape[1])
    rates = np.repeat([_RATE_OF_SLOPES, _RATE_OF_GATES], len(slopes))
    first, second = np.zeros(len(rates)), np.zeros(len(rates))
    for step, noise in enumerate(_NOISE * rng.standard_normal((steps, len(slopes))), 1):
        middle = centre + 0.5
        raw, scaled = middle + noise, middle / _NOISE
        # As np.clip, which takes three times as long for so few
        gates = np.minimum(np.maximum(raw, 0.0), 1.0)
        error = 2.0 * (products @ (slopes * gates) - across)
        density = np.exp(-0.5 * scaled**2) / (_NOISE * math.sqrt(2.0 * math.pi))
        of_gates = error * slopes * (raw == gates) + 2.0 * penalty * ndtr(scaled).sum() * density
        gradient = np.concatenate([error * gates, of_gates])
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        change = (
            rates * (first / (1.0 - 0.9**step)) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-8)
        )
        slopes, centre = slopes - change[: len(slopes)], centre - change[len(slopes) :]
    probability: FloatArray = ndtr((centre + 0.5) / _NOISE)
    return probability
