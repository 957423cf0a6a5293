"""W_out relu(W_in x + b_in) without its hidden layer in memory: the kernels.

Arrays are (member, feature, position), weights (member, hidden, feature) and (member, feature, hidden), all contiguous
within a member. The backward computes the hidden layer again, once for grad_x and once for the gradients of weights.
"""

import triton
import triton.language as tl


@triton.jit
def _positions(array, member, feature, position, POSITIONS: tl.constexpr, DIM: tl.constexpr):
    """A (position, feature) block."""
    at = member * DIM * POSITIONS + position[:, None] + feature[None, :] * POSITIONS
    return tl.load(array + at, mask=(position < POSITIONS)[:, None] & (feature < DIM)[None, :], other=0.0), at


@triton.jit
def _weights(w_in, b_in, w_out, member, unit, feature, HIDDEN: tl.constexpr, DIM: tl.constexpr):
    """A block of hidden units: W_in's rows and W_out's columns, both (unit, feature), and b_in."""
    there = (unit < HIDDEN)[:, None] & (feature < DIM)[None, :]
    into = tl.load(
        w_in + member * HIDDEN * DIM + unit[:, None] * DIM + feature[None, :], mask=there, other=0.0
    )
    out_of = tl.load(
        w_out + member * HIDDEN * DIM + unit[:, None] + feature[None, :] * HIDDEN, mask=there, other=0.0
    )
    bias = tl.load(b_in + member * HIDDEN + unit, mask=unit < HIDDEN, other=0.0).to(tl.float32)
    return into, out_of, bias


@triton.jit
def forward(
    x, w_in, b_in, w_out, y,
    POSITIONS: tl.constexpr, HIDDEN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ROWS positions of a member, UNITS hidden units at a time."""
    member = tl.program_id(1).to(tl.int64)
    position, feature = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    point, at = _positions(x, member, feature, position, POSITIONS, DIM)
    answer = tl.zeros([ROWS, WIDE], tl.float32)
    for first in range(0, HIDDEN, UNITS):
        unit = first + tl.arange(0, UNITS)
        into, out_of, bias = _weights(w_in, b_in, w_out, member, unit, feature, HIDDEN, DIM)
        active = tl.dot(point, tl.trans(into), input_precision=PRECISION) + bias[None, :]
        active = tl.maximum(active, 0.0).to(point.dtype)
        answer = tl.dot(active, out_of, answer, input_precision=PRECISION)
    mask = (position < POSITIONS)[:, None] & (feature < DIM)[None, :]
    tl.store(y + at, answer.to(y.dtype.element_ty), mask=mask)


@triton.jit
def backward_of_input(
    x, w_in, b_in, w_out, grad, grad_x,
    POSITIONS: tl.constexpr, HIDDEN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """grad_x = W_inᵀ (1[W_in x + b_in > 0] ∘ W_outᵀ grad)"""
    member = tl.program_id(1).to(tl.int64)
    position, feature = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    point, at = _positions(x, member, feature, position, POSITIONS, DIM)
    pull, _ = _positions(grad, member, feature, position, POSITIONS, DIM)
    to_x = tl.zeros([ROWS, WIDE], tl.float32)
    for first in range(0, HIDDEN, UNITS):
        unit = first + tl.arange(0, UNITS)
        into, out_of, bias = _weights(w_in, b_in, w_out, member, unit, feature, HIDDEN, DIM)
        active = tl.dot(point, tl.trans(into), input_precision=PRECISION) + bias[None, :]
        through = tl.dot(pull, tl.trans(out_of), input_precision=PRECISION)
        through = tl.where(active > 0, through, 0.0).to(point.dtype)
        to_x = tl.dot(through, into, to_x, input_precision=PRECISION)
    mask = (position < POSITIONS)[:, None] & (feature < DIM)[None, :]
    tl.store(grad_x + at, to_x.to(grad_x.dtype.element_ty), mask=mask)


@triton.jit
def backward_of_weights(
    x, w_in, b_in, w_out, grad, grad_in, grad_bias, grad_out,
    POSITIONS: tl.constexpr, HIDDEN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """UNITS hidden units of a member over all positions: their rows of W_in's, b_in's and W_outᵀ's gradients."""
    member = tl.program_id(1).to(tl.int64)
    unit, feature = tl.program_id(0) * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDE)
    into, out_of, bias = _weights(w_in, b_in, w_out, member, unit, feature, HIDDEN, DIM)
    to_in = tl.zeros([UNITS, WIDE], tl.float32)
    to_out = tl.zeros([UNITS, WIDE], tl.float32)
    to_bias = tl.zeros([UNITS], tl.float32)
    for first in range(0, POSITIONS, ROWS):
        position = first + tl.arange(0, ROWS)
        point, _ = _positions(x, member, feature, position, POSITIONS, DIM)
        pull, _ = _positions(grad, member, feature, position, POSITIONS, DIM)
        active = tl.dot(into, tl.trans(point), input_precision=PRECISION) + bias[:, None]
        through = tl.where(active > 0, tl.dot(out_of, tl.trans(pull), input_precision=PRECISION), 0.0)
        to_bias += tl.sum(through, axis=1)
        to_out = tl.dot(tl.maximum(active, 0.0).to(pull.dtype), pull, to_out, input_precision=PRECISION)
        to_in = tl.dot(through.to(point.dtype), point, to_in, input_precision=PRECISION)
    there = (unit < HIDDEN)[:, None] & (feature < DIM)[None, :]
    tl.store(grad_in + member * HIDDEN * DIM + unit[:, None] * DIM + feature[None, :], to_in, mask=there)
    tl.store(grad_out + member * HIDDEN * DIM + unit[:, None] + feature[None, :] * HIDDEN, to_out, mask=there)
    tl.store(grad_bias + member * HIDDEN + unit, to_bias, mask=unit < HIDDEN)
