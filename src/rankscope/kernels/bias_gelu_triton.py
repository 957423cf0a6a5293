"""A bias and the tanh-GELU behind it: the kernels. Arrays are (member, position, hidden), contiguous."""

import triton
import triton.language as tl

TWICE_ROOT = tl.constexpr(1.5957691216057308)
"""√(8/π): gelu(z) = z·σ(√(8/π)·(z + 0.044715 z³)), since (1 + tanh u)/2 = σ(2u)."""

CUBIC = tl.constexpr(0.044715)


@triton.jit
def _block(
    turn, positions, HIDDEN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr
):
    """Where a block of a member lies, and which numbers of it there are."""
    member = tl.program_id(2).to(tl.int64)
    position = (tl.program_id(0) * TURNS + turn) * ROWS + tl.arange(0, ROWS)
    neuron = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = (member * positions + position[:, None]) * HIDDEN + neuron[None, :]
    return at, (position < positions)[:, None] & (neuron < HIDDEN)[None, :]


@triton.jit
def _biases(bias, stride, HIDDEN: tl.constexpr, COLUMNS: tl.constexpr):
    neuron = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    return tl.load(bias + tl.program_id(2).to(tl.int64) * stride + neuron, mask=neuron < HIDDEN, other=0.0)


@triton.jit
def bias_gelu_forward(
    x, bias, stride, out, positions,
    HIDDEN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """TURNS blocks of a member."""
    offset = _biases(bias, stride, HIDDEN, COLUMNS)
    for turn in range(TURNS):
        at, there = _block(turn, positions, HIDDEN, COLUMNS, ROWS, TURNS)
        z = tl.load(x + at, mask=there, other=0.0).to(tl.float32) + offset[None, :]
        open = tl.sigmoid(TWICE_ROOT * z * (1 + CUBIC * z * z))
        tl.store(out + at, (z * open).to(out.dtype.element_ty), mask=there)


@triton.jit
def bias_gelu_backward(
    pull, x, bias, stride, to_x, parts, positions,
    HIDDEN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """σ + z σ (1 − σ) √(8/π) (1 + 3·0.044715 z²), times the gradient; and this program's share of the bias's."""
    offset = _biases(bias, stride, HIDDEN, COLUMNS)
    to_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(TURNS):
        at, there = _block(turn, positions, HIDDEN, COLUMNS, ROWS, TURNS)
        z = tl.load(x + at, mask=there, other=0.0).to(tl.float32) + offset[None, :]
        open = tl.sigmoid(TWICE_ROOT * z * (1 + CUBIC * z * z))
        slope = open + z * open * (1 - open) * TWICE_ROOT * (1 + 3 * CUBIC * z * z)
        found = tl.load(pull + at, mask=there, other=0.0).to(tl.float32) * slope
        to_bias += found
        tl.store(to_x + at, found.to(to_x.dtype.element_ty), mask=there)
    neuron = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    share = parts + (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * HIDDEN + neuron
    tl.store(share, tl.sum(to_bias, 0), mask=neuron < HIDDEN)
