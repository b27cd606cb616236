"""MMADS: synthetic regression whose training sample was picked with a bias.

The stable columns S cause Y; the unstable columns V do not. A sample is kept with a probability
that is high where a few of the unstable columns, V_b, lie close to Y (or to −Y), so that in the
kept data V_b predicts Y as well as a cause does. Drawn with another bias rate, the same V_b
mislead. Described in "Out-of-distribution Generalization via Partial Feature Decorrelation" and,
first, in "Stable Prediction with Model Misspecification and Agnostic Distribution Shift".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

if TYPE_CHECKING:
    import pandas as pd

Setting = Literal["independent", "s_to_v", "v_to_s"]
FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

SETTINGS: tuple[Setting, ...] = ("independent", "s_to_v", "v_to_s")
_COEFFICIENT_CYCLE = np.array([1 / 3, -2 / 3, 1, -1 / 3, 2 / 3, -1])
_NOISE = 0.3
_EXPONENT = 5.0
_BIASED_SHARE = 0.1


@dataclass(frozen=True)
class MMADS:
    """One environment of MMADS.

    Attributes:
        X: the columns, S first and then V, of shape (n, p).
        y: the outcome, of shape (n,).
        beta: the true linear coefficients, of shape (p,); zero on V.
        stable: indices of the columns S, which cause y.
        unstable: indices of the columns V, which do not.
        biased: indices of V_b, the part of V that the selection ties to y.
        r: the bias rate of the selection.
        setting: how S and V are related before the selection.
    """

    X: FloatArray
    y: FloatArray
    beta: FloatArray
    stable: IndexArray
    unstable: IndexArray
    biased: IndexArray
    r: float
    setting: Setting

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the columns: S1, S2, …, V1, V2, …."""
        return [f"S{i + 1}" for i in range(len(self.stable))] + [
            f"V{i + 1}" for i in range(len(self.unstable))
        ]

    def frame(self) -> pd.DataFrame:
        """Return the columns and the outcome (last, named ``y``) as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.X, columns=self.feature_names).assign(y=self.y)


def make_mmads(
    n: int,
    p: int,
    r: float,
    setting: Setting = "independent",
    *,
    seed: int | np.random.Generator | None = None,
) -> MMADS:
    """Draw one environment of MMADS, with exactly n rows kept by the biased selection.

    The outcome is y = Sβ + S1·S2·S3 + noise of standard deviation 0.3. A row is kept with
    probability ``Π |r| ** (−5 · |y − sign(r) V_b|)`` over V_b, which is the first tenth of the
    columns, taken from V.

    Before the selection (S, V) is jointly Gaussian: given the rest, each column of V_b is a
    Gaussian that the selection multiplies by an exponential. Both its normaliser and its law after
    the selection are known in closed form, so V_b is integrated out of the acceptance and then
    drawn from its exact conditional law. The distribution is that of plain rejection; the cost is a
    handful of proposals per row instead of thousands at large ``|r|``.

    Args:
        n: rows wanted.
        p: columns, even and at least 10; half are stable, half unstable.
        r: bias rate, ``|r| > 1``. Its sign says whether V_b follows y or −y, its size how closely.
        setting: ``"independent"`` (S ⊥ V), ``"s_to_v"`` (S causes V) or ``"v_to_s"`` (V causes S).
        seed: seed or generator of the draw.

    Returns:
        The environment, with what is true about it.

    Raises:
        ValueError: if an argument is outside its range.

    Examples:
        >>> data = make_mmads(1000, 10, 1.7, seed=0)
        >>> data.X.shape, data.biased.tolist()
        ((1000, 10), [5])
        >>> float(
        ...     np.corrcoef(data.X[:, 5], data.y)[0, 1].round(1)
        ... )  # V1 is no cause of y, yet follows it
        0.8
    """
    _check(n, p, r, setting)
    rng = np.random.default_rng(seed)
    half = p // 2
    stable = np.arange(half)
    unstable = np.arange(half, p)
    biased = unstable[: round(_BIASED_SHARE * p)]
    beta = true_coefficients(p)
    mixing = _mixing(setting, half)
    others, slopes, scale, spread = _condition(mixing @ mixing.T, biased)
    rate = _EXPONENT * math.log(abs(r)) * scale

    kept: list[tuple[FloatArray, FloatArray]] = []
    missing = n
    proposals = 2 * n
    while missing > 0:
        first = rng.standard_normal((proposals, mixing.shape[1] - half))
        second = rng.standard_normal((proposals, half))
        X = np.hstack([first, second]) @ mixing.T
        interaction = X[:, 0] * X[:, 1] * X[:, 2]
        noise = _NOISE * rng.standard_normal(proposals)
        y = X[:, :half] @ beta[:half] + interaction + noise

        moved = rng.standard_normal((proposals, len(biased))) @ spread.T
        centre = X[:, others] @ slopes + moved
        distance = (math.copysign(1.0, r) * y[:, None] - centre) / scale
        log_mass = _log_tilted_mass(distance, rate)
        largest = _log_tilted_mass(np.zeros(1), rate)
        log_acceptance = (log_mass - largest).sum(axis=1)
        accepted = np.flatnonzero(np.log1p(-rng.random(proposals)) <= log_acceptance)[:missing]

        X = X[accepted]
        X[:, biased] = centre[accepted] + scale * _draw_tilted(rng, distance[accepted], rate)
        kept.append((X, y[accepted]))
        missing -= len(accepted)
        share = max(len(accepted), 1) / proposals
        proposals = int(min(max(1.2 * missing / share, 1000), 50_000_000 / p))
    return MMADS(
        X=np.concatenate([X for X, _ in kept]),
        y=np.concatenate([y for _, y in kept]),
        beta=beta,
        stable=stable,
        unstable=unstable,
        biased=biased,
        r=float(r),
        setting=setting,
    )


def _check(n: int, p: int, r: float, setting: str) -> None:
    """Raise ValueError unless the arguments are in their ranges."""
    if n < 1:
        raise ValueError(f"n must be at least 1 row, got {n}.")
    if p < 10 or p % 2:
        raise ValueError(f"p must be even (half stable, half unstable) and at least 10, got {p}.")
    if not abs(r) > 1 or not math.isfinite(r):
        raise ValueError(
            f"The bias rate r must be finite with |r| > 1 (|r| = 1 selects nothing), got {r}."
        )
    if setting not in SETTINGS:
        raise ValueError(
            f"Unknown setting {setting!r}: choose one of {', '.join(map(repr, SETTINGS))}."
        )


def true_coefficients(p: int) -> FloatArray:
    """Return the linear coefficients β of p columns: the cycle 1/3, −2/3, 1, −1/3, 2/3, −1 on S,
    zero on V.
    """
    return np.concatenate([np.resize(_COEFFICIENT_CYCLE, p // 2), np.zeros(p // 2)])


def _mixing(setting: Setting, half: int) -> FloatArray:
    """Return A for which (S, V) = A e before the selection, where e is independent and standard
    normal.
    """
    identity = np.eye(half)
    zero = np.zeros((half, half))
    following = np.roll(identity, 1, axis=1)  # following @ v is v shifted by one
    if setting == "v_to_s":
        return np.block([[0.2 * identity + 0.8 * following, identity], [identity, zero]])
    chain = 0.8 * np.eye(half, half + 1) + 0.2 * np.eye(half, half + 1, 1)
    onto_v = 0.8 * identity + 0.2 * following if setting == "s_to_v" else zero
    return np.block([[chain, zero], [onto_v @ chain, identity]])


def _condition(
    covariance: FloatArray, biased: IndexArray
) -> tuple[IndexArray, FloatArray, float, FloatArray]:
    """Return V_b given the other columns as N(centre, scale² I), the centre itself random where V_b
    is correlated.

    The conditional covariance Σ is split as scale² I + rest with scale² its smallest eigenvalue;
    the rest goes into the centre. Given the centre the columns of V_b are independent, so the
    selection factorises over them.

    Returns:
        The other columns, the slopes of the centre on them, the scale, and what spreads the centre
        by standard normal noise.
    """
    others = np.setdiff1d(np.arange(len(covariance)), biased)
    among_others = covariance[np.ix_(others, others)]
    towards_biased = covariance[np.ix_(others, biased)]
    slopes = np.linalg.solve(among_others, towards_biased).astype(np.float64)
    conditional = covariance[np.ix_(biased, biased)] - towards_biased.T @ slopes
    eigenvalues, vectors = np.linalg.eigh(conditional)
    spread = vectors * np.sqrt(np.maximum(eigenvalues - eigenvalues[0], 0.0))
    return others, slopes, math.sqrt(eigenvalues[0]), spread


def _log_halves(t: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return the logs of ∫ φ(e) exp(−rate |t − e|) de over e < t and over e > t (both times
    exp(−rate²/2)).
    """
    return -rate * t + log_ndtr(t - rate), rate * t + log_ndtr(-t - rate)


def _log_tilted_mass(t: FloatArray, rate: float) -> FloatArray:
    """Return the log of E exp(−rate |t − e|), e ~ N(0, 1), up to a constant; largest at t = 0."""
    total: FloatArray = np.asarray(logsumexp(np.stack(_log_halves(t, rate)), axis=0))
    return total


def _draw_tilted(rng: np.random.Generator, t: FloatArray, rate: float) -> FloatArray:
    """Draw e with density ∝ φ(e) exp(−rate |t − e|): a truncated Gaussian on each side of t."""
    log_left, log_right = _log_halves(t, rate)
    left = np.log(rng.random(t.shape)) < log_left - np.logaddexp(log_left, log_right)
    # Mirrored, the right half is a left half: e ~ N(rate, 1) below ±t, by inversion on the log
    # scale.
    bound = np.where(left, t, -t)
    below = rate + ndtri_exp(np.log1p(-rng.random(t.shape)) + log_ndtr(bound - rate))
    drawn: FloatArray = np.where(left, below, -below)
    return drawn
