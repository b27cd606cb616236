"""The closed form of :mod:`pfdl.decorrelation.kernels.triton_closed_form` as Triton kernels.

A program walks along the features j of one block and keeps a tile of rows × hidden units in
registers. The tile of pre-activations is made, used and overwritten for each j; what leaves the
registers is Ũ, a gradient, or one tile of sums for a whole block of features. All arithmetic is
float32. Multiplications are fused with additions only where ``tl.fma`` says so: two kernels that
must agree to the last bit on δ then do, however they are compiled.

A kernel takes each pointer and each size by itself, because the language has no structures.
"""

# ruff: noqa: D103 - kernels are described by the comment above each
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr


# A stretch of this length: the numbers of its rows, columns or hidden units.
@triton.jit
def stretch(number, LENGTH: constexpr):
    return number * LENGTH + tl.arange(0, LENGTH)


# Values in a row, 0 beyond its end.
@triton.jit
def load(values, place, size):
    return tl.load(values + place, mask=place < size, other=0.0)


@triton.jit
def store(values, place, result, size):
    tl.store(values + place, result, mask=place < size)


# Which elements of a tile lie inside a matrix.
@triton.jit
def inside_of(row, column, rows, columns):
    return (row < rows)[:, None] & (column < columns)[None, :]


# Where the elements of a tile lie in a matrix whose rows have this width.
@triton.jit
def places_in(row, column, width):
    return row[:, None] * width + column[None, :]


# A tile of a matrix, 0 beyond its edges.
@triton.jit
def load_tile(matrix, row, column, rows, columns):
    inside = inside_of(row, column, rows, columns)
    return tl.load(matrix + places_in(row, column, columns), mask=inside, other=0.0)


@triton.jit
def store_tile(matrix, row, column, tile, rows, columns):
    inside = inside_of(row, column, rows, columns)
    tl.store(matrix + places_in(row, column, columns), tile, mask=inside)


@triton.jit
def _activation(x, GELU: constexpr):
    if GELU:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        y = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return y


@triton.jit
def _slope(x, GELU: constexpr):
    if GELU:
        probability = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        y = probability + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    else:
        y = tl.where(x > 0.0, 1.0, 0.0)
    return y


@triton.jit
def _column(matrix, row, j, n, p):
    rows = tl.where(j < p, n, 0)
    return tl.load(matrix + row * p + j, mask=row < rows, other=0.0).to(tl.float32)


@triton.jit
def _weights(weight, k, unit, visible, h):
    units = tl.where((k >= 0) & (k < visible), h, 0)
    return load(weight + k * h, unit, units)


# δ of one feature for a tile, from its column of G.
@triton.jit
def _delta(of_row, readout, pre, GELU: constexpr):
    return (of_row[:, None] * readout[None, :]) * _slope(pre, GELU)


# A tile plus a product of its rows and its hidden units.
@triton.jit
def _add_product(tile, of_row, of_unit):
    zeros = tl.zeros_like(tile)
    return tl.fma(of_row[:, None] + zeros, of_unit[None, :] + zeros, tile)


# What a program starts with: the base of its rows, for strict sharing that of its block, with the
# bias added.
@triton.jit
def _start(base, offset, row, unit, block, n, h, STRICT: constexpr):
    if STRICT:
        state = load_tile(base + block * n * h, row, unit, n, h)
        state += load(offset, unit, h)[None, :]
    else:
        state = load_tile(base, row, unit, n, h)
    return state


# The pre-activations of feature j for a tile, and the state for the next feature.
@triton.jit
def _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT: constexpr):
    if STRICT:
        pre = state
        step = u_j - _column(u, row, j + 1, n, p)
        state = _add_product(state, step, w_j)
    else:
        whole = state + _weights(offset, j, unit, p, h)[None, :]
        pre = _add_product(whole, -u_j, w_j)
    return pre, state


# Sums over the features of a block: of W_k u_k and, for strict sharing, of W_k u_{k+1}.
@triton.jit
def block_sums(
    u,
    weight,
    own,
    following,
    n,
    p,
    h,
    visible,
    STRICT: constexpr,
    ROWS: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    block = tl.program_id(2)
    row = stretch(tl.program_id(0), ROWS)
    unit = stretch(tl.program_id(1), UNITS)
    first = block * FEATURES
    sums = tl.zeros((ROWS, UNITS), tl.float32)
    shifted = tl.zeros((ROWS, UNITS), tl.float32)
    for t in range(FEATURES):
        k = first + t
        w = _weights(weight, k, unit, visible, h)
        sums = _add_product(sums, _column(u, row, k, n, p), w)
        if STRICT:
            shifted = _add_product(shifted, _column(u, row, k + 1, n, p), w)
    store_tile(own + block * n * h, row, unit, sums, n, h)
    if STRICT:
        store_tile(following + block * n * h, row, unit, shifted, n, h)


# Along the blocks: the sum of own before each of them, plus that of following from it on, or the
# total of own. All blocks are read at once, because each read waits for the memory.
@triton.jit
def scan_blocks(
    own,
    following,
    out,
    total,
    blocks,
    size,
    SUFFIX: constexpr,
    LENGTH: constexpr,
    BLOCKS: constexpr,
):
    place = stretch(tl.program_id(0), LENGTH)
    block = tl.arange(0, BLOCKS)
    has_earlier = inside_of(block, place, blocks, size) & (block > 0)[:, None]
    earlier = tl.load(own + places_in(block - 1, place, size), mask=has_earlier, other=0.0)
    result = tl.cumsum(earlier, axis=0)
    if SUFFIX:
        later = load_tile(following, block, place, blocks, size)
        result += tl.cumsum(later, axis=0, reverse=True)
    else:
        last_block = own + (blocks - 1) * size
        store(total, place, tl.sum(earlier, axis=0) + load(last_block, place, size), size)
    store_tile(out, block, place, result, blocks, size)


# Ũ: one program for a tile of rows and a block of features, over all hidden units.
@triton.jit
def predict(
    u,
    weight,
    offset,
    readout,
    constant,
    base,
    out,
    n,
    p,
    h,
    visible,
    STRICT: constexpr,
    GELU: constexpr,
    ROWS: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    block = tl.program_id(1)
    row = stretch(tl.program_id(0), ROWS)
    column = tl.arange(0, FEATURES)
    first = block * FEATURES
    result = tl.zeros((ROWS, FEATURES), tl.float32)
    for start in range(0, h, UNITS):
        unit = start + tl.arange(0, UNITS)
        v = load(readout, unit, h)
        state = _start(base, offset, row, unit, block, n, h, STRICT)
        for t in range(FEATURES):
            j = first + t
            u_j = _column(u, row, j, n, p)
            w_j = _weights(weight, j, unit, visible, h)
            pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
            value = tl.sum(_activation(pre, GELU) * v[None, :], axis=1)
            result = tl.where(column[None, :] == t, result + value[:, None], result)
    result += tl.load(constant)
    store_tile(out, row, first + column, result, n, p)


# Sums of δ over the features of a block.
@triton.jit
def delta_sums(
    u,
    weight,
    offset,
    readout,
    gradient,
    base,
    sums,
    n,
    p,
    h,
    visible,
    STRICT: constexpr,
    GELU: constexpr,
    ROWS: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    block = tl.program_id(2)
    row = stretch(tl.program_id(0), ROWS)
    unit = stretch(tl.program_id(1), UNITS)
    v = load(readout, unit, h)
    state = _start(base, offset, row, unit, block, n, h, STRICT)
    acc = tl.zeros((ROWS, UNITS), tl.float32)
    for t in range(FEATURES):
        j = block * FEATURES + t
        u_j = _column(u, row, j, n, p)
        w_j = _weights(weight, j, unit, visible, h)
        pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
        g_j = _column(gradient, row, j, n, p)
        acc += _delta(g_j, v, pre, GELU)
    store_tile(sums + block * n * h, row, unit, acc, n, h)


# The gradient of the features, added to what out has if ADD. prefix is L at the start of each block
# (strict), total Δ.
@triton.jit
def feature_gradient(
    u,
    weight,
    offset,
    readout,
    gradient,
    base,
    prefix,
    total,
    out,
    n,
    p,
    h,
    visible,
    ADD: constexpr,
    STRICT: constexpr,
    GELU: constexpr,
    ROWS: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    block = tl.program_id(1)
    row = stretch(tl.program_id(0), ROWS)
    column = tl.arange(0, FEATURES)
    first = block * FEATURES
    result = tl.zeros((ROWS, FEATURES), tl.float32)
    for start in range(0, h, UNITS):
        unit = start + tl.arange(0, UNITS)
        v = load(readout, unit, h)
        whole = load_tile(total, row, unit, n, h)
        state = _start(base, offset, row, unit, block, n, h, STRICT)
        if STRICT:
            before = load_tile(prefix + block * n * h, row, unit, n, h)
        for t in range(FEATURES):
            j = first + t
            u_j = _column(u, row, j, n, p)
            w_j = _weights(weight, j, unit, visible, h)
            pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
            g_j = _column(gradient, row, j, n, p)
            delta = _delta(g_j, v, pre, GELU)
            if STRICT:
                until = before + delta
                w_last = _weights(weight, j - 1, unit, visible, h)
                parts = (whole - until) * w_j[None, :] + before * w_last[None, :]
                value = tl.sum(parts, axis=1)
                before = until
            else:
                value = tl.sum((whole - delta) * w_j[None, :], axis=1)
            result = tl.where(column[None, :] == t, result + value[:, None], result)
    j = first + column
    if ADD:
        result += load_tile(out, row, j, n, p)
    store_tile(out, row, j, result, n, p)


# Indexed sharing: the gradients of W and of the offsets; those of v and c of each block, side by
# side in sums. A program keeps a tile of features × hidden units and walks along the rows: sums
# over rows stay in registers, in order.
@triton.jit
def indexed_parameter_sums(
    u,
    weight,
    offset,
    readout,
    gradient,
    base,
    total,
    of_weight,
    of_offset,
    sums,
    n,
    p,
    h,
    GELU: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    block = tl.program_id(0)
    j = stretch(block, FEATURES)
    unit = stretch(tl.program_id(1), UNITS)
    v = load(readout, unit, h)
    w = load_tile(weight, j, unit, p, h)
    e = load_tile(offset, j, unit, p, h)
    acc_weight = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_offset = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_readout = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_constant = tl.zeros((FEATURES,), tl.float32)
    for i in range(n):
        u_i = load(u + i * p, j, p).to(tl.float32)
        g_i = load(gradient + i * p, j, p)
        start = load(base + i * h, unit, h)
        whole = load(total + i * h, unit, h)
        pre = (start[None, :] + e) - u_i[:, None] * w
        delta = _delta(g_i, v, pre, GELU)
        acc_weight += u_i[:, None] * (whole[None, :] - delta)
        acc_offset += delta
        acc_readout += g_i[:, None] * _activation(pre, GELU)
        acc_constant += g_i
    transposed = unit[None, :] * p + j[:, None]
    tl.store(of_weight + transposed, acc_weight, mask=inside_of(j, unit, p, h))
    store_tile(of_offset, j, unit, acc_offset, p, h)
    here = sums + block * (h + 1)
    store(here, unit, tl.sum(acc_readout, axis=0), h)
    tl.store(here + h, tl.sum(acc_constant, axis=0), mask=tl.program_id(1) == 0)


# Strict sharing: the gradient of W of some rows, by coordinate; and side by side in sums those of
# v, of the offsets and of c, of some rows and a block. Here a tile of rows walks along the
# features.
@triton.jit
def strict_parameter_sums(
    u,
    weight,
    offset,
    readout,
    gradient,
    base,
    prefix,
    total,
    of_weight,
    sums,
    n,
    p,
    h,
    visible,
    GELU: constexpr,
    ROWS: constexpr,
    UNITS: constexpr,
    FEATURES: constexpr,
):
    part = tl.program_id(0)
    block = tl.program_id(2)
    row = stretch(part, ROWS)
    unit = stretch(tl.program_id(1), UNITS)
    v = load(readout, unit, h)
    state = _start(base, offset, row, unit, block, n, h, True)
    until = load_tile(prefix + block * n * h, row, unit, n, h)
    whole = load_tile(total, row, unit, n, h)
    acc_readout = tl.zeros((ROWS, UNITS), tl.float32)
    acc_constant = tl.zeros((ROWS,), tl.float32)
    for t in range(FEATURES):
        j = block * FEATURES + t
        u_j = _column(u, row, j, n, p)
        g_j = _column(gradient, row, j, n, p)
        w_j = _weights(weight, j, unit, visible, h)
        pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, True)
        until += _delta(g_j, v, pre, GELU)
        acc_readout += g_j[:, None] * _activation(pre, GELU)
        acc_constant += g_j
        step = u_j - _column(u, row, j + 1, n, p)
        of_w_j = tl.sum(u_j[:, None] * whole - step[:, None] * until, axis=0)
        units = tl.where(j < visible, h, 0)
        store(of_weight + (part * visible + j) * h, unit, of_w_j, units)
    here = sums + (part * tl.num_programs(2) + block) * (2 * h + 1)
    store(here, unit, tl.sum(acc_readout, axis=0), h)
    is_first = tl.where(block == 0, 1.0, 0.0)  # Δ is that of all blocks
    of_offset = is_first * tl.sum(whole, axis=0)
    store(here + h, unit, of_offset, h)
    tl.store(here + 2 * h, tl.sum(acc_constant, axis=0), mask=tl.program_id(1) == 0)


# The sum over parts of a (rows, columns) matrix, transposed.
@triton.jit
def sum_transposed(parts, out, number, rows, columns, SIDE: constexpr):
    row = stretch(tl.program_id(0), SIDE)
    column = stretch(tl.program_id(1), SIDE)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for part in range(number):
        acc += load_tile(parts + part * rows * columns, row, column, rows, columns)
    store_tile(out, column, row, tl.trans(acc), columns, rows)
