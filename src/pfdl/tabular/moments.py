"""Second moments of a table, from which every linear regression among its columns follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_ROWS_AT_A_TIME = 65_536
_COLLINEAR = 1e-8


@dataclass(frozen=True)
class Moments:
    """Covariance of [columns scaled to variance 1, label functions], with what is needed to centre new rows.

    Attributes:
        joint: covariance matrix (maximum likelihood: divided by ``rows``) of shape (p + d, p + d).
        mean: means of [columns, label functions].
        scale: standard deviations of the columns.
        rows: rows it was computed from.
    """

    joint: FloatArray
    mean: FloatArray
    scale: FloatArray
    rows: int

    @classmethod
    def of(cls, X: FloatArray, label: FloatArray) -> Moments:
        """Compute them in chunks of rows, so that no centred copy of a large table is made."""
        n, p = X.shape
        mean = np.concatenate([X.mean(axis=0, dtype=np.float64), label.mean(axis=0, dtype=np.float64)])
        joint = np.zeros((len(mean), len(mean)))
        for start in range(0, n, _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            chunk = np.hstack([X[rows], label[rows]]) - mean
            joint += chunk.T @ chunk
        joint /= n
        scale = np.sqrt(np.diag(joint)[:p])
        both = np.concatenate([np.where(scale > 0, scale, 1.0), np.ones(label.shape[1])])
        return cls(joint / np.outer(both, both), mean, both[:p], n)

    @property
    def num_columns(self) -> int:
        """How many columns there are, p."""
        return len(self.scale)

    @property
    def label(self) -> IndexArray:
        """Where the label functions stand in ``joint``."""
        return np.arange(self.num_columns, len(self.mean))

    def scaled(self, X: FloatArray) -> FloatArray:
        """Rows of X, centred and scaled."""
        result: FloatArray = (X - self.mean[: self.num_columns]) / self.scale
        return result

    def centred(self, label: FloatArray) -> FloatArray:
        """Rows of the label functions, centred."""
        result: FloatArray = label - self.mean[self.num_columns :]
        return result

    def unbias(self, inputs: int) -> float:
        """Factor that makes a residual variance after a regression on this many inputs unbiased."""
        return self.rows / (self.rows - inputs - 1)

    def covariance(self, columns: IndexArray, given: IndexArray | None = None) -> FloatArray:
        """Covariance of some columns, or of what a regression on the ``given`` ones leaves of them."""
        block: FloatArray = self.joint[np.ix_(columns, columns)]
        if given is None or not len(given):
            return block
        across = self.joint[np.ix_(given, columns)]
        rest: FloatArray = block - across.T @ np.linalg.solve(self.joint[np.ix_(given, given)], across)
        return rest

    def residual_variance(self, given: IndexArray) -> FloatArray:
        """Unbiased variance that a regression on the ``given`` leaves of every column (tiny for the given ones)."""
        columns = np.arange(self.num_columns)
        variance = np.diag(self.covariance(columns, given=given)) * self.unbias(len(given))
        return np.maximum(variance, np.finfo(float).tiny)


def independent_columns(X: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Split the columns into linearly independent ones and those that follow from them.

    Returns:
        The indices of the independent columns (constant ones are not among them), in order, and a matrix of shape
        (independent, p) that writes every centred column as a combination of them.
    """
    moments = Moments.of(X, np.empty((len(X), 0)))
    # A column whose spread is rounding error next to its size is constant.
    varies = moments.scale > np.sqrt(np.finfo(float).eps) * np.abs(moments.mean) * 1e-3
    correlation = np.where(np.outer(varies, varies), moments.joint, 0.0)
    _, triangle, order = qr(correlation, pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _COLLINEAR).sum())
    independent: IndexArray = np.sort(order[:rank]).astype(np.intp)
    among = correlation[np.ix_(independent, independent)]
    return independent, np.linalg.solve(among, correlation[independent])
