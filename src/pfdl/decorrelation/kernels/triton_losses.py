"""Both losses and their gradients at Ũ and at the features in closed form, as Triton kernels in
float32.

With n samples, t_j and m_j the means of Ũ_j and u_j over them, s_i = Σ_k (u_ik − m_k), the mean of
the other features without its own mean N_ij = (s_i − (u_ij − m_j)) / (p − 1), and μ_j = (Σ_k m_k −
m_j) / (p − 1),

    L_g       = mean_ij (u_ij − Ũ_ij)²         ∂L_g/∂Ũ_ij      = 2 (Ũ_ij − u_ij) / np
    level_j   = t_j μ_j                        covariance_j    = Σ_i (Ũ_ij − t_j) N_ij / n
    L_decorr  = mean_j c_j²                    ∂L_decorr/∂Ũ_ij = 2 c_j M_ij / np
                                               ∂L_decorr/∂u_ik = 2 (Σ_j q_ij − q_ik) / np(p − 1)

with c_j = level_j + covariance_j, M_ij = N_ij + μ_j and q_ij = c_j Ũ_ij; if the features are
centred, c_j is the covariance alone, M_ij = N_ij and q_ij = c_j (Ũ_ij − t_j). The last line is the
part that does not pass through g. Nothing large is subtracted from something large: means are taken
away before products are summed. A mean is two numbers, its rounded value and what that lacks, the
mean of the differences from it: at a mean of 10⁴ the rounding is 10⁻³ of a spread of 1, and s_i
adds up that of p features.

Each pass over the (n, p) arrays is one launch. A program sums over all rows of a few columns, or
over all columns of a row, in one fixed order.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from pfdl.decorrelation.finiteness import WIDE_SCALES
from pfdl.decorrelation.functional import largest_feature
from pfdl.decorrelation.kernels.triton_kernels import (
    inside_of,
    load,
    load_tile,
    store,
    store_tile,
    stretch,
)

COLUMN_TILE = {"ROWS": 128, "COLUMNS": 16, "num_warps": 4}
"""Tile of the kernels that walk down the rows."""

ROW_LENGTH = 2048
"""Columns at a time of the kernels that walk along a row."""


def fit_errors(u: Tensor, correlated: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient of L_g at Ũ, (n, p), for each feature L_g and its variance, (p,), and the
    means, (2, p).

    The first row of the means is rounded, the second is what the first lacks.

    L_g of a feature is not a number if one of its values is not finite or so large that L_decorr
    would overflow.
    """
    n, p = u.shape
    gradient = torch.empty_like(correlated)
    columns = correlated.new_empty(4, p)
    limit = largest_feature(torch.float32)
    _fit_errors[_column_tiles(p)](
        u, correlated, gradient, columns, n, p, 2 / (n * p), 1 / n, limit, **COLUMN_TILE
    )
    errors, variances = columns[:2]
    return gradient, errors, variances, columns[2:]


def penalty(
    u: Tensor, correlated: Tensor, means: Tensor, centred: bool, flags: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return L_decorr with its two parts, (3,), its gradient at Ũ, and besides at the features,
    both (n, p).

    Args:
        u: The features, shape (n, p).
        correlated: Ũ, shape (n, p).
        means: Of the features, shape (2, p), as :func:`fit_errors` returns them.
        centred: Whether L_decorr centres the features.
        flags: The second number becomes 1.0 if a feature is far larger than the others of its row.
    """
    n, p = u.shape
    length = min(ROW_LENGTH, triton.next_power_of_2(p))
    rows = correlated.new_empty(n)
    columns = correlated.new_empty(5, p)
    losses = correlated.new_empty(3)
    of_correlated = torch.empty_like(correlated)
    direct = torch.empty_like(u)
    _row_sums[(n,)](u, means, rows, flags, p, WIDE_SCALES / (p - 1), LENGTH=length, num_warps=4)
    _column_sums[_column_tiles(p)](
        u, correlated, rows, means, columns, n, p, 1 / n, 1 / (p - 1), LENGTH=length, **COLUMN_TILE
    )
    _penalty_gradients[(n,)](
        u,
        correlated,
        rows,
        columns,
        means,
        losses,
        of_correlated,
        direct,
        p,
        1 / p,
        1 / (p - 1),
        2 / (p * n),
        CENTRED=centred,
        LENGTH=length,
        num_warps=4,
    )
    return losses, of_correlated, direct


def _column_tiles(p: int) -> tuple[int]:
    return (triton.cdiv(p, COLUMN_TILE["COLUMNS"]),)


# The gradient of L_g at Ũ; for each column the squared error, not a number beyond the limit, the
# variance, the mean and what it lacks.
@triton.jit
def _fit_errors(
    u, correlated, gradient, columns, n, p, scale, share, limit, ROWS: constexpr, COLUMNS: constexpr
):
    column = stretch(tl.program_id(0), COLUMNS)
    sums = tl.zeros((COLUMNS,), tl.float32)
    squares = tl.zeros((COLUMNS,), tl.float32)
    beyond = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        x = load_tile(u, row, column, n, p)
        missed = load_tile(correlated, row, column, n, p) - x
        store_tile(gradient, row, column, missed * scale, n, p)
        sums += tl.sum(x, axis=0)
        squares += tl.sum(missed * missed, axis=0)
        beyond += tl.sum(tl.where(tl.abs(x) <= limit, 0.0, 1.0), axis=0)  # also NaN is beyond
    mean = sums * share
    spread = tl.zeros((COLUMNS,), tl.float32)
    lacking = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        x = load_tile(u, row, column, n, p)
        distance = tl.where(inside_of(row, column, n, p), x - mean[None, :], 0.0)
        spread += tl.sum(distance * distance, axis=0)
        lacking += tl.sum(distance, axis=0)
    unexplained = tl.where(beyond > 0.0, float("nan"), squares * share)
    store(columns, column, unexplained, p)
    store(columns + p, column, spread * share, p)
    store(columns + 2 * p, column, mean, p)
    store(columns + 3 * p, column, lacking * share, p)


# Values of columns without the means of these.
@triton.jit
def _without_mean(values, means, column, p):
    return (values - load(means, column, p)) - load(means + p, column, p)


# s_i of each row; and whether its largest feature is so many times the sum of the others.
@triton.jit
def _row_sums(u, means, rows, flags, p, wide, LENGTH: constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((LENGTH,), tl.float32)
    sizes = tl.zeros((LENGTH,), tl.float32)
    largest = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        x = load(u + row * p, column, p)
        acc += _without_mean(x, means, column, p)
        sizes += tl.abs(x)
        largest = tl.maximum(largest, tl.abs(x))
    tl.store(rows + row, tl.sum(acc, axis=0))
    most = tl.max(largest, axis=0)
    others = tl.sum(sizes, axis=0) - most
    tl.store(flags + 1, 1.0, mask=most > wide * others)


# For each column its level, its covariance, μ_j, t_j and what that lacks.
@triton.jit
def _column_sums(
    u,
    correlated,
    rows,
    means,
    columns,
    n,
    p,
    share,
    inverse_others,
    LENGTH: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
):
    column = stretch(tl.program_id(0), COLUMNS)
    all_means = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, p, LENGTH):
        other = start + tl.arange(0, LENGTH)
        all_means += load(means, other, p)
    mean = load(means, column, p)
    mean_lacks = load(means + p, column, p)
    mean_of_others = (tl.sum(all_means, axis=0) - mean) * inverse_others
    sums = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        sums += tl.sum(load_tile(correlated, row, column, n, p), axis=0)
    mean_correlated = sums * share
    products = tl.zeros((COLUMNS,), tl.float32)
    lacking = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = inside_of(row, column, n, p)
        x = load_tile(u, row, column, n, p)
        x = (x - mean[None, :]) - mean_lacks[None, :]
        y = load_tile(correlated, row, column, n, p) - mean_correlated[None, :]
        whole = load(rows, row, n)
        others = (whole[:, None] - x) * inverse_others
        products += tl.sum(tl.where(inside, y * others, 0.0), axis=0)
        lacking += tl.sum(tl.where(inside, y, 0.0), axis=0)
    store(columns, column, mean_correlated * mean_of_others, p)
    store(columns + p, column, products * share, p)
    store(columns + 2 * p, column, mean_of_others, p)
    store(columns + 3 * p, column, mean_correlated, p)
    store(columns + 4 * p, column, lacking * share, p)


# The gradients of L_decorr for one row; the first program also computes L_decorr and its parts.
@triton.jit
def _penalty_gradients(
    u,
    correlated,
    rows,
    columns,
    means,
    losses,
    of_correlated,
    direct,
    p,
    inverse_p,
    inverse_others,
    scale,
    CENTRED: constexpr,
    LENGTH: constexpr,
):
    row = tl.program_id(0)
    whole = tl.load(rows + row)
    acc = tl.zeros((LENGTH,), tl.float32)
    squares = tl.zeros((LENGTH,), tl.float32)
    levels = tl.zeros((LENGTH,), tl.float32)
    covariances = tl.zeros((LENGTH,), tl.float32)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        level = load(columns, column, p)
        cross = load(columns + p, column, p)
        y = load(correlated + row * p, column, p)
        levels += level * level
        covariances += cross * cross
        if CENTRED:
            y = _without_mean(y, columns + 3 * p, column, p)
        else:
            cross += level
        acc += cross * y
        squares += cross * cross
    total = tl.sum(acc, axis=0)
    if row == 0:
        tl.store(losses, tl.sum(squares, axis=0) * inverse_p)
        tl.store(losses + 1, tl.sum(levels, axis=0) * inverse_p)
        tl.store(losses + 2, tl.sum(covariances, axis=0) * inverse_p)
    for start in range(0, p, LENGTH):
        column = start + tl.arange(0, LENGTH)
        cross = load(columns + p, column, p)
        y = load(correlated + row * p, column, p)
        x = load(u + row * p, column, p)
        x = _without_mean(x, means, column, p)
        others = (whole - x) * inverse_others
        if CENTRED:
            y = _without_mean(y, columns + 3 * p, column, p)
        else:
            cross += load(columns, column, p)
            others += load(columns + 2 * p, column, p)
        store(of_correlated + row * p, column, scale * cross * others, p)
        store(direct + row * p, column, scale * inverse_others * (total - cross * y), p)
