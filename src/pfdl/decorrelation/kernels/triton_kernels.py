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


# Which elements of a tile lie inside a matrix.
@triton.jit
def inside_of(row, column, rows, columns):
    return (row < rows)[:, None] & (column < columns)[None, :]


# Where the elements of a tile lie in a matrix whose rows have this width.
@triton.jit
def places_in(row, column, width):
    return row[:, None] * width + column[None, :]


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
    return tl.load(weight + k * h + unit, mask=unit < units, other=0.0)


@triton.jit
def _tile(matrix, row, unit, n, h):
    inside = inside_of(row, unit, n, h)
    return tl.load(matrix + places_in(row, unit, h), mask=inside, other=0.0)


# What a program starts with: the base of its rows, for strict sharing that of its block, with the
# bias added.
@triton.jit
def _start(base, offset, row, unit, block, n, h, STRICT: constexpr):
    if STRICT:
        bias = tl.load(offset + unit, mask=unit < h, other=0.0)
        state = _tile(base + block * n * h, row, unit, n, h) + bias[None, :]
    else:
        state = _tile(base, row, unit, n, h)
    return state


# The pre-activations of feature j for a tile, and the state for the next feature.
@triton.jit
def _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT: constexpr):
    if STRICT:
        pre = state
        step = u_j - _column(u, row, j + 1, n, p)
        steps = step[:, None] + tl.zeros_like(state)
        weights = w_j[None, :] + tl.zeros_like(state)
        state = tl.fma(steps, weights, state)
    else:
        e_j = _weights(offset, j, unit, p, h)
        whole = state + e_j[None, :]
        features = -u_j[:, None] + tl.zeros_like(state)
        weights = w_j[None, :] + tl.zeros_like(state)
        pre = tl.fma(features, weights, whole)
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
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    first = block * FEATURES
    sums = tl.zeros((ROWS, UNITS), tl.float32)
    shifted = tl.zeros((ROWS, UNITS), tl.float32)
    zeros = tl.zeros((ROWS, UNITS), tl.float32)
    for t in range(FEATURES):
        k = first + t
        w = _weights(weight, k, unit, visible, h)[None, :] + zeros
        u_k = _column(u, row, k, n, p)[:, None] + zeros
        sums = tl.fma(u_k, w, sums)
        if STRICT:
            after = _column(u, row, k + 1, n, p)[:, None] + zeros
            shifted = tl.fma(after, w, shifted)
    place = block * n * h + places_in(row, unit, h)
    inside = inside_of(row, unit, n, h)
    tl.store(own + place, sums, mask=inside)
    if STRICT:
        tl.store(following + place, shifted, mask=inside)


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
    place = tl.program_id(0) * LENGTH + tl.arange(0, LENGTH)
    block = tl.arange(0, BLOCKS)
    inside = inside_of(block, place, blocks, size)
    where = places_in(block, place, size)
    has_earlier = inside & (block > 0)[:, None]
    earlier = tl.load(own + where - size, mask=has_earlier, other=0.0)
    result = tl.cumsum(earlier, axis=0)
    if SUFFIX:
        later = tl.load(following + where, mask=inside, other=0.0)
        result += tl.cumsum(later, axis=0, reverse=True)
    else:
        last_block = own + (blocks - 1) * size
        last = tl.load(last_block + place, mask=place < size, other=0.0)
        tl.store(total + place, tl.sum(earlier, axis=0) + last, mask=place < size)
    tl.store(out + where, result, mask=inside)


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
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, FEATURES)
    first = block * FEATURES
    result = tl.zeros((ROWS, FEATURES), tl.float32)
    for start in range(0, h, UNITS):
        unit = start + tl.arange(0, UNITS)
        v = tl.load(readout + unit, mask=unit < h, other=0.0)
        state = _start(base, offset, row, unit, block, n, h, STRICT)
        for t in range(FEATURES):
            j = first + t
            u_j = _column(u, row, j, n, p)
            w_j = _weights(weight, j, unit, visible, h)
            pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
            value = tl.sum(_activation(pre, GELU) * v[None, :], axis=1)
            result = tl.where(column[None, :] == t, result + value[:, None], result)
    result += tl.load(constant)
    j = first + column
    tl.store(out + places_in(row, j, p), result, mask=inside_of(row, j, n, p))


# Sums of δ over the features of a block.
@triton.jit
def delta_sums(
    u,
    gradient,
    weight,
    offset,
    readout,
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
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    v = tl.load(readout + unit, mask=unit < h, other=0.0)
    state = _start(base, offset, row, unit, block, n, h, STRICT)
    acc = tl.zeros((ROWS, UNITS), tl.float32)
    for t in range(FEATURES):
        j = block * FEATURES + t
        u_j = _column(u, row, j, n, p)
        w_j = _weights(weight, j, unit, visible, h)
        pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
        g_j = _column(gradient, row, j, n, p)
        acc += (g_j[:, None] * v[None, :]) * _slope(pre, GELU)
    place = block * n * h + places_in(row, unit, h)
    tl.store(sums + place, acc, mask=inside_of(row, unit, n, h))


# The gradient of the features, added to what out has if ADD. prefix is L at the start of each block
# (strict), total Δ.
@triton.jit
def feature_gradient(
    u,
    gradient,
    weight,
    offset,
    readout,
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
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, FEATURES)
    first = block * FEATURES
    result = tl.zeros((ROWS, FEATURES), tl.float32)
    for start in range(0, h, UNITS):
        unit = start + tl.arange(0, UNITS)
        v = tl.load(readout + unit, mask=unit < h, other=0.0)
        whole = _tile(total, row, unit, n, h)
        state = _start(base, offset, row, unit, block, n, h, STRICT)
        if STRICT:
            before = _tile(prefix + block * n * h, row, unit, n, h)
        for t in range(FEATURES):
            j = first + t
            u_j = _column(u, row, j, n, p)
            w_j = _weights(weight, j, unit, visible, h)
            pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, STRICT)
            g_j = _column(gradient, row, j, n, p)
            delta = (g_j[:, None] * v[None, :]) * _slope(pre, GELU)
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
    place = places_in(row, j, p)
    inside = inside_of(row, j, n, p)
    if ADD:
        result += tl.load(out + place, mask=inside, other=0.0)
    tl.store(out + place, result, mask=inside)


# Indexed sharing: the gradients of W and of the offsets; those of v and c of each block, side by
# side in sums. A program keeps a tile of features × hidden units and walks along the rows: sums
# over rows stay in registers, in order.
@triton.jit
def indexed_parameter_sums(
    u,
    gradient,
    weight,
    offset,
    readout,
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
    j = block * FEATURES + tl.arange(0, FEATURES)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    v = tl.load(readout + unit, mask=unit < h, other=0.0)
    w = _tile(weight, j, unit, p, h)
    e = _tile(offset, j, unit, p, h)
    acc_weight = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_offset = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_readout = tl.zeros((FEATURES, UNITS), tl.float32)
    acc_constant = tl.zeros((FEATURES,), tl.float32)
    for i in range(n):
        u_i = tl.load(u + i * p + j, mask=j < p, other=0.0).to(tl.float32)
        g_i = tl.load(gradient + i * p + j, mask=j < p, other=0.0)
        start = tl.load(base + i * h + unit, mask=unit < h, other=0.0)
        whole = tl.load(total + i * h + unit, mask=unit < h, other=0.0)
        pre = (start[None, :] + e) - u_i[:, None] * w
        delta = (g_i[:, None] * v[None, :]) * _slope(pre, GELU)
        acc_weight += u_i[:, None] * (whole[None, :] - delta)
        acc_offset += delta
        acc_readout += g_i[:, None] * _activation(pre, GELU)
        acc_constant += g_i
    inside = inside_of(j, unit, p, h)
    transposed = unit[None, :] * p + j[:, None]
    tl.store(of_weight + transposed, acc_weight, mask=inside)
    tl.store(of_offset + places_in(j, unit, h), acc_offset, mask=inside)
    here = sums + block * (h + 1)
    tl.store(here + unit, tl.sum(acc_readout, axis=0), mask=unit < h)
    tl.store(here + h, tl.sum(acc_constant, axis=0), mask=tl.program_id(1) == 0)


# Strict sharing: the gradient of W of some rows, by coordinate; and side by side in sums those of
# v, of the offsets and of c, of some rows and a block. Here a tile of rows walks along the
# features.
@triton.jit
def strict_parameter_sums(
    u,
    gradient,
    weight,
    offset,
    readout,
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
    row = part * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    v = tl.load(readout + unit, mask=unit < h, other=0.0)
    state = _start(base, offset, row, unit, block, n, h, True)
    until = _tile(prefix + block * n * h, row, unit, n, h)
    whole = _tile(total, row, unit, n, h)
    acc_readout = tl.zeros((ROWS, UNITS), tl.float32)
    acc_constant = tl.zeros((ROWS,), tl.float32)
    for t in range(FEATURES):
        j = block * FEATURES + t
        u_j = _column(u, row, j, n, p)
        g_j = _column(gradient, row, j, n, p)
        w_j = _weights(weight, j, unit, visible, h)
        pre, state = _advance(state, u_j, w_j, u, offset, row, unit, j, n, p, h, True)
        until += (g_j[:, None] * v[None, :]) * _slope(pre, GELU)
        acc_readout += g_j[:, None] * _activation(pre, GELU)
        acc_constant += g_j
        step = u_j - _column(u, row, j + 1, n, p)
        of_w_j = tl.sum(u_j[:, None] * whole - step[:, None] * until, axis=0)
        units = tl.where(j < visible, h, 0)
        place = (part * visible + j) * h + unit
        tl.store(of_weight + place, of_w_j, mask=unit < units)
    here = sums + (part * tl.num_programs(2) + block) * (2 * h + 1)
    tl.store(here + unit, tl.sum(acc_readout, axis=0), mask=unit < h)
    is_first = tl.where(block == 0, 1.0, 0.0)  # Δ is that of all blocks
    of_offset = is_first * tl.sum(whole, axis=0)
    tl.store(here + h + unit, of_offset, mask=unit < h)
    tl.store(here + 2 * h, tl.sum(acc_constant, axis=0), mask=tl.program_id(1) == 0)


# The sum over parts of a (rows, columns) matrix, transposed.
@triton.jit
def sum_transposed(parts, out, number, rows, columns, SIDE: constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = inside_of(row, column, rows, columns)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for part in range(number):
        here = places_in(part * rows + row, column, columns)
        acc += tl.load(parts + here, mask=inside, other=0.0)
    place = places_in(column, row, rows)
    tl.store(out + place, tl.trans(acc), mask=inside_of(column, row, columns, rows))
