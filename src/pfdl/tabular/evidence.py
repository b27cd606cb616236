"""How much of each column of a table the other columns explain, with and without the label.

Four residual variances per column j say all of it (F: the columns already dropped):

* v(F), v(F, y): what F alone, F and y, leave unexplained;
* v(rest), v(rest, y): what all other columns, without and with y, leave unexplained.

    m = 1 − v(rest)/v(F)                       how much of j the other columns explain
    k = 1 − v(rest, y)/v(F, y)                 the same, once y is known
    share = (v(F) − v(F, y)) / (v(F) − v(rest, y))   of all that can be explained of j, how much y explains alone
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from pfdl.tabular.moments import Moments, precision_diagonal

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Unexplained:
    """Residual variance of every (standardised) column given all the others, without and with the label.

    ``rows`` and ``inputs`` are the rows the variances were measured on and the inputs they were fitted with on those
    same rows (0 where they were measured on rows held out from the fit).
    """

    without_label: FloatArray
    with_label: FloatArray
    rows: float
    inputs: int


class Decomposer(Protocol):
    """Measures how much of each column the others explain."""

    def __call__(self, X: FloatArray, label: FloatArray, moments: Moments) -> Unexplained:
        """Return the residual variances of the columns of X, scaled to variance 1 as in ``moments``."""
        ...


def linear_decomposer(X: FloatArray, label: FloatArray, moments: Moments) -> Unexplained:
    """Decompose with least squares, for all columns at once, from one inverse covariance matrix."""
    columns = np.arange(moments.num_columns)
    return Unexplained(
        without_label=moments.unbias(len(columns) - 1) / precision_diagonal(moments.covariance(columns)),
        with_label=moments.unbias(len(columns) - 1 + len(moments.label))
        / precision_diagonal(moments.covariance(columns, given=moments.label)),
        rows=moments.rows,
        inputs=len(columns) - 1,
    )


@dataclass(frozen=True)
class Given:
    """m, k and share of every column, given the columns already dropped, and the tests of m > 0 and k > 0."""

    m: FloatArray
    k: FloatArray
    share: FloatArray
    correlated: NDArray[np.bool_]
    collides: NDArray[np.bool_]


class Evidence:
    """What a decomposition says about each column.

    Args:
        moments: Of the columns and the label.
        unexplained: What the other columns leave unexplained of each.
        alpha: Level of the tests, divided by the number of columns.

    Attributes:
        relevance: p-value, per column, of "given all other columns, this one and the label have nothing in common".
        relevant: Mask of the columns for which that is rejected.
    """

    def __init__(self, moments: Moments, unexplained: Unexplained, alpha: float) -> None:
        self.moments = moments
        self.unexplained = unexplained
        self.level = alpha / moments.num_columns
        self.relevance = self._p_value(
            unexplained.without_label, unexplained.with_label, added_inputs=len(moments.label), inputs_of_label=True
        )
        self.relevant = self.relevance < self.level

    def given(self, dropped: list[int]) -> Given:
        """Measure m, k and share of every column, given the columns already dropped."""
        label = self.moments.label
        v_f = self.moments.residual_variance(np.array(dropped, dtype=np.intp))
        v_fy = self.moments.residual_variance(np.concatenate([np.array(dropped, dtype=np.intp), label]))
        v_rest, v_rest_y = self.unexplained.without_label, self.unexplained.with_label
        told = np.maximum(v_f - v_rest_y, np.finfo(float).tiny)
        others = max(self.unexplained.inputs - len(dropped), 1)
        return Given(
            m=1.0 - v_rest / v_f,
            k=1.0 - v_rest_y / v_fy,
            share=np.clip((v_f - v_fy) / told, 0.0, 1.0),
            correlated=self._p_value(v_f, v_rest, others, inputs_of_label=False) < self.level,
            collides=self._p_value(v_fy, v_rest_y, others, inputs_of_label=True) < self.level,
        )

    def adds_to_label(self, known: NDArray[np.intp], goal: int) -> bool:
        """Test by F whether all columns explain more of the first ``goal`` functions of the label than the known do."""
        moments, p = self.moments, self.moments.num_columns
        rows, added = moments.rows, p - len(known)
        both = moments.explained_share(np.arange(p), goal)
        alone = moments.explained_share(known, goal)
        freedom = max(rows - p - 1.0, 1.0)
        # From shares that allow for the number of inputs back to sums of squares.
        rest, more = (1.0 - both) * freedom, (1.0 - alone) * max(rows - len(known) - 1.0, 1.0)
        gain = max(more - rest, 0.0) / max(added, 1) / max(rest / freedom, np.finfo(float).tiny)
        return bool(added and fdtrc(added, freedom, gain) < self.level * p)

    def _p_value(
        self, smaller: FloatArray, larger: FloatArray, added_inputs: int, *, inputs_of_label: bool
    ) -> FloatArray:
        """Test by F that the larger model explains no more than the smaller; both as unbiased residual variances."""
        if self.unexplained.inputs:
            freedom = self.unexplained.rows - 1 - self.unexplained.inputs
            freedom -= len(self.moments.label) if inputs_of_label else 0
            gain = smaller * (freedom + added_inputs) - larger * freedom
        else:  # measured on held-out rows, where a gain is a gain however many inputs it took
            freedom, added_inputs = self.unexplained.rows - 1, 1
            gain = (smaller - larger) * freedom
        p_value: FloatArray = fdtrc(added_inputs, freedom, np.maximum(gain, 0.0) / added_inputs / larger)
        return p_value
