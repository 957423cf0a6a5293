"""A residual sum and its LayerNorm: the kernels. Arrays are (member, position, dim), contiguous; sums are float32."""

import triton
import triton.language as tl


@triton.jit
def _block(turn, positions, DIM: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr):
    """Where a block of ROWS positions of a member lies, and which numbers of it there are."""
    member = tl.program_id(1).to(tl.int64)
    position = (tl.program_id(0) * TURNS + turn) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, WIDE)
    at = (member * positions + position[:, None]) * DIM + feature[None, :]
    return at, (position < positions)[:, None] & (feature < DIM)[None, :]


@triton.jit
def _normed(total, there, epsilon, DIM: tl.constexpr):
    """(total − mean)/√(variance + epsilon), zero beside the array, and what it was divided by."""
    centred = tl.where(there, total - (tl.sum(total, 1) / DIM)[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / DIM + epsilon)
    return centred * rate[:, None], rate


@triton.jit
def add_norm_forward(
    x, branch, bias, gain, shift, total, normed, bias_stride, gain_stride, shift_stride, positions, epsilon,
    DIM: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """TURNS blocks of ROWS positions of a member."""
    member, feature = tl.program_id(1).to(tl.int64), tl.arange(0, WIDE)
    inside = feature < DIM
    offset = tl.load(bias + member * bias_stride + feature, mask=inside, other=0.0)
    slope = tl.load(gain + member * gain_stride + feature, mask=inside, other=0.0)
    level = tl.load(shift + member * shift_stride + feature, mask=inside, other=0.0)
    for turn in range(TURNS):
        at, there = _block(turn, positions, DIM, WIDE, ROWS, TURNS)
        found = tl.load(x + at, mask=there, other=0.0) + offset[None, :]
        found += tl.load(branch + at, mask=there, other=0.0).to(tl.float32)
        tl.store(total + at, found, mask=there)
        unit, _ = _normed(found, there, epsilon, DIM)
        tl.store(
            normed + at, (unit * slope[None, :] + level[None, :]).to(normed.dtype.element_ty), mask=there
        )


@triton.jit
def add_norm_backward(
    to_total, to_normed, total, gain, to_x, to_branch, parts, gain_stride, positions, epsilon,
    WITH_TOTAL: tl.constexpr, NARROW: tl.constexpr,
    DIM: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """With u the normed sum and p = gain ∘ its gradient: (p − mean p − u·mean(p u))·rate, and shares of bias, gain, shift."""
    member, feature = tl.program_id(1).to(tl.int64), tl.arange(0, WIDE)
    slope = tl.load(gain + member * gain_stride + feature, mask=feature < DIM, other=0.0)
    to_bias = tl.zeros((ROWS, WIDE), tl.float32)
    to_gain = tl.zeros((ROWS, WIDE), tl.float32)
    to_shift = tl.zeros((ROWS, WIDE), tl.float32)
    for turn in range(TURNS):
        at, there = _block(turn, positions, DIM, WIDE, ROWS, TURNS)
        unit, rate = _normed(tl.load(total + at, mask=there, other=0.0), there, epsilon, DIM)
        pull = tl.load(to_normed + at, mask=there, other=0.0).to(tl.float32)
        to_gain += pull * unit
        to_shift += pull
        pull *= slope[None, :]
        along, mean = tl.sum(pull * unit, 1) / DIM, tl.sum(pull, 1) / DIM
        found = (pull - mean[:, None] - unit * along[:, None]) * rate[:, None]
        if WITH_TOTAL:
            found += tl.load(to_total + at, mask=there, other=0.0)
        found = tl.where(there, found, 0.0)
        to_bias += found
        tl.store(to_x + at, found, mask=there)
        if NARROW:
            tl.store(to_branch + at, found.to(to_branch.dtype.element_ty), mask=there)
    share = parts + (member * tl.num_programs(0) + tl.program_id(0)) * 3 * DIM + feature
    tl.store(share, tl.sum(to_bias, 0), mask=feature < DIM)
    tl.store(share + DIM, tl.sum(to_gain, 0), mask=feature < DIM)
    tl.store(share + 2 * DIM, tl.sum(to_shift, 0), mask=feature < DIM)
