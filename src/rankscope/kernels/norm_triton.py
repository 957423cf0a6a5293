"""scale · z/‖z‖ with z = x + branch + bias: the kernels. Arrays are (member, feature, position), contiguous."""

import triton
import triton.language as tl


@triton.jit
def _sum(x, branch, bias, member, feature, position, positions, DIM: tl.constexpr):
    """z as a (feature, position) block, its offsets and its mask."""
    at = member * DIM * positions + feature[:, None] * positions + position[None, :]
    mask = (feature < DIM)[:, None] & (position < positions)[None, :]
    offset = tl.load(bias + member * DIM + feature, mask=feature < DIM, other=0.0).to(tl.float32)
    z = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) + offset[:, None]
    return z + tl.load(branch + at, mask=mask, other=0.0).to(tl.float32), at, mask


@triton.jit
def forward(
    x, branch, bias, scale, y, positions, smallest,
    DIM: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK positions of a member."""
    member = tl.program_id(1).to(tl.int64)
    feature, position = tl.arange(0, WIDE), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z, at, mask = _sum(x, branch, bias, member, feature, position, positions, DIM)
    length = tl.sqrt(tl.maximum(tl.sum(tl.where(mask, z * z, 0.0), axis=0), smallest))
    size = tl.load(scale + member)
    tl.store(y + at, (z * (size / length)[None, :]).to(y.dtype.element_ty), mask=mask)


@triton.jit
def backward(
    x, branch, bias, scale, grad, grad_z, grad_bias, grad_scale, positions, smallest,
    DIM: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """With u = z/‖z‖: grad_z = scale/‖z‖ · (grad − u (u·grad)); this block's share of the other two."""
    member = tl.program_id(1).to(tl.int64)
    feature, position = tl.arange(0, WIDE), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z, at, mask = _sum(x, branch, bias, member, feature, position, positions, DIM)
    z = tl.where(mask, z, 0.0)
    length = tl.sqrt(tl.maximum(tl.sum(z * z, axis=0), smallest))
    pull = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    along = tl.sum(z * pull, axis=0) / length
    size = tl.load(scale + member)
    to_z = (pull - z * (along / length)[None, :]) * (size / length)[None, :]
    tl.store(grad_z + at, to_z.to(grad_z.dtype.element_ty), mask=mask)
    share = member * tl.num_programs(0) + tl.program_id(0)
    tl.store(grad_bias + share * DIM + feature, tl.sum(tl.where(mask, to_z, 0.0), axis=1), mask=feature < DIM)
    tl.store(grad_scale + share, tl.sum(along, axis=0))
