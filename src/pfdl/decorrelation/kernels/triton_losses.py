"""The closed form of :mod:`pfdl.decorrelation.kernels.losses` as Triton kernels, and who launches them.

Each pass over the (n, p) arrays is one launch. A program sums over all rows of a few columns, or over all columns of a
row, in one fixed order.
"""


# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from pfdl.decorrelation.kernels.losses import FitErrors, PenaltyGradients, PenaltySums

COLUMN_TILE = {"ROWS": 128, "COLUMNS": 16, "num_warps": 4}
"""Tile of the kernels that walk down the rows."""

ROW_LENGTH = 2048
"""Columns at a time of the kernels that walk along a row."""


class TritonLosses:
    """The losses on a GPU, in float32."""

    @staticmethod
    def fit_errors(u: Tensor, correlated: Tensor, total: int, limit: float) -> FitErrors:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""
        n, p = u.shape
        gradient, found = torch.empty_like(correlated), correlated.new_empty(2, p)
        _fit_errors[_column_tiles(p)](
            u, correlated, gradient, found, n, p, 2 / (total * p), 1 / total, 1 / n, limit, **COLUMN_TILE
        )
        return FitErrors(gradient, found[0], found[1])

    @staticmethod
    def penalty_sums(u: Tensor, correlated: Tensor, means: Tensor | None) -> PenaltySums:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""
        n, p = u.shape
        rows, columns = correlated.new_empty(n), correlated.new_empty(3, p)
        centred = means is not None
        means = rows if means is None else means  # a place that is not read
        _row_sums[(n,)](u, means, rows, p, CENTRED=centred, LENGTH=_length(p), num_warps=4)
        _column_sums[_column_tiles(p)](
            u, correlated, rows, means, columns, n, p, 1 / (p - 1), CENTRED=centred, **COLUMN_TILE
        )
        return PenaltySums(columns, rows)

    @staticmethod
    def penalty_gradients(
        u: Tensor, correlated: Tensor, sums: PenaltySums, means: Tensor | None, total: int, factor: float
    ) -> PenaltyGradients:
        """See :class:`pfdl.decorrelation.kernels.losses.TorchLosses`."""
        n, p = u.shape
        loss, of_correlated, direct = correlated.new_empty(()), torch.empty_like(correlated), torch.empty_like(u)
        _penalty_gradients[(n,)](
            u, correlated, sums.rows, sums.columns, sums.rows if means is None else means, loss, of_correlated, direct,
            p, 1 / total, 1 / p, 1 / (p - 1), 2 * factor / (p * total),
            CENTRED=means is not None, LENGTH=_length(p), num_warps=4,
        )  # fmt: skip
        return PenaltyGradients(loss, of_correlated, direct)


def _column_tiles(p: int) -> tuple[int]:
    return (-(-p // COLUMN_TILE["COLUMNS"]),)


def _length(p: int) -> int:
    return min(ROW_LENGTH, 1 << (p - 1).bit_length())


# The gradient of L_g at Ũ; for each column the squared error, not a number beyond the limit, and the variance.
@triton.jit
def _fit_errors(
    u, correlated, gradient, found, n, p, scale, share, inverse_n, limit, ROWS: constexpr, COLUMNS: constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS,), tl.float32)
    squares = tl.zeros((COLUMNS,), tl.float32)
    beyond = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        place = row[:, None] * p + column[None, :]
        inside = (row < n)[:, None] & (column < p)[None, :]
        x = tl.load(u + place, mask=inside, other=0.0)
        missed = tl.load(correlated + place, mask=inside, other=0.0) - x
        tl.store(gradient + place, missed * scale, mask=inside)
        sums += tl.sum(x, axis=0)
        squares += tl.sum(missed * missed, axis=0)
        beyond += tl.sum(tl.where(tl.abs(x) <= limit, 0.0, 1.0), axis=0)  # also NaN is beyond
    mean = sums * inverse_n
    spread = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < n)[:, None] & (column < p)[None, :]
        x = tl.load(u + row[:, None] * p + column[None, :], mask=inside, other=0.0)
        distance = tl.where(inside, x - mean[None, :], 0.0)
        spread += tl.sum(distance * distance, axis=0)
    unexplained = tl.where(beyond > 0.0, float("nan"), squares * share)
    tl.store(found + column, unexplained, mask=column < p)
    tl.store(found + p + column, spread * inverse_n, mask=column < p)


# s_i, the sum of each row, of the centred features if they are.
@triton.jit
def _row_sums(u, means, rows, p, CENTRED: constexpr, LENGTH: constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        x = tl.load(u + row * p + column, mask=column < p, other=0.0)
        if CENTRED:
            x -= tl.load(means + column, mask=column < p, other=0.0)
        acc += x
    tl.store(rows + row, tl.sum(acc, axis=0))


# Σ_i Ũ_ij M_ij, Σ_i Ũ_ij and Σ_i u_ij.
@triton.jit
def _column_sums(
    u, correlated, rows, means, columns, n, p, inverse_others,
    CENTRED: constexpr, ROWS: constexpr, COLUMNS: constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    products = tl.zeros((COLUMNS,), tl.float32)
    of_correlated = tl.zeros((COLUMNS,), tl.float32)
    of_features = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        place = row[:, None] * p + column[None, :]
        inside = (row < n)[:, None] & (column < p)[None, :]
        x = tl.load(u + place, mask=inside, other=0.0)
        y = tl.load(correlated + place, mask=inside, other=0.0)
        whole = tl.load(rows + row, mask=row < n, other=0.0)
        of_features += tl.sum(x, axis=0)
        if CENTRED:
            x -= tl.load(means + column, mask=column < p, other=0.0)[None, :]
        products += tl.sum(y * ((whole[:, None] - x) * inverse_others), axis=0)
        of_correlated += tl.sum(y, axis=0)
    tl.store(columns + column, products, mask=column < p)
    tl.store(columns + p + column, of_correlated, mask=column < p)
    tl.store(columns + 2 * p + column, of_features, mask=column < p)


# The gradients of L_decorr for one row; the first program also computes L_decorr.
@triton.jit
def _penalty_gradients(
    u, correlated, rows, columns, means, loss, of_correlated, direct,
    p, inverse_total, inverse_p, inverse_others, scale,
    CENTRED: constexpr, LENGTH: constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    whole = tl.load(rows + row)
    acc = tl.zeros((LENGTH,), tl.float32)
    squares = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        cross = tl.load(columns + column, mask=column < p, other=0.0) * inverse_total
        y = tl.load(correlated + row * p + column, mask=column < p, other=0.0)
        if CENTRED:
            y -= tl.load(columns + p + column, mask=column < p, other=0.0) * inverse_total
        acc += cross * y
        squares += cross * cross
    total = tl.sum(acc, axis=0)
    if row == 0:
        tl.store(loss, tl.sum(squares, axis=0) * inverse_p)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        inside = column < p
        place = row * p + column
        cross = tl.load(columns + column, mask=inside, other=0.0) * inverse_total
        y = tl.load(correlated + place, mask=inside, other=0.0)
        x = tl.load(u + place, mask=inside, other=0.0)
        if CENTRED:
            y -= tl.load(columns + p + column, mask=inside, other=0.0) * inverse_total
            x -= tl.load(means + column, mask=inside, other=0.0)
        tl.store(of_correlated + place, scale * cross * ((whole - x) * inverse_others), mask=inside)
        tl.store(direct + place, scale * inverse_others * (total - cross * y), mask=inside)
