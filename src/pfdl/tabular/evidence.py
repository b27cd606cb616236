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

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from pfdl.tabular.moments import Moments, precision_diagonal

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnShares:
    """m, k and share of every column, given the columns already dropped, and the tests of m > 0 and k > 0."""

    m: FloatArray
    k: FloatArray
    share: FloatArray
    correlated: NDArray[np.bool_]
    collides: NDArray[np.bool_]


class Evidence:
    """What the least squares of each column on the others say about it, for all at once from an inverse covariance.

    Args:
        moments: Moments of the columns and the label.
        alpha: Level of the tests, divided by the number of columns.

    Attributes:
        relevance: p-value, per column, of "given all other columns, this one and the label have nothing in common".
        relevant: Mask of the columns for which that is rejected.
    """

    def __init__(self, moments: Moments, alpha: float) -> None:
        self.moments = moments
        self.level = alpha / moments.num_columns
        columns, label = np.arange(moments.num_columns), moments.label
        alone, known = moments.covariance(columns), moments.covariance(columns, given=label)
        self._others = len(columns) - 1
        self._rest = moments.unbias(self._others) / precision_diagonal(alone)
        self._rest_with_label = moments.unbias(self._others + len(label)) / precision_diagonal(known)
        self.relevance = self._p_value(self._rest, self._rest_with_label, len(label), inputs_of_label=True)
        self.relevant = self.relevance < self.level

    def given(self, dropped: list[int]) -> ColumnShares:
        """Measure m, k and share of every column, given the columns already dropped."""
        label = self.moments.label
        v_f = self.moments.residual_variance(np.array(dropped, dtype=np.intp))
        v_fy = self.moments.residual_variance(np.concatenate([np.array(dropped, dtype=np.intp), label]))
        v_rest, v_rest_y = self._rest, self._rest_with_label
        told = np.maximum(v_f - v_rest_y, np.finfo(float).tiny)
        others = max(self._others - len(dropped), 1)
        return ColumnShares(
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
        freedom = self.moments.rows - 1 - self._others - (len(self.moments.label) if inputs_of_label else 0)
        gain = smaller * (freedom + added_inputs) - larger * freedom
        p_value: FloatArray = fdtrc(added_inputs, freedom, np.maximum(gain, 0.0) / added_inputs / larger)
        return p_value
