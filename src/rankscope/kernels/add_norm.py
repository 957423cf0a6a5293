"""A residual stream's sum and the LayerNorm behind it in one pass: `rankscope::add_norm`, with its gradient.

The stream stays float32, what is added to it and the normed array may be of 16 bits: no pass is spent on casts.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels.attention import power_of_two
from rankscope.kernels.vectors import part_sums, strided

ELEMENTS = 2048
"""Of a program's block."""

TURNS = 4
"""Blocks of a program: the gradients of bias, gain and shift are summed up over them before they are written."""

LARGEST_DIM = 4096


def add_norm(
    x: Float[Tensor, "member position dim"],
    branch: Float[Tensor, "member position dim"],
    bias: Float[Tensor, "member dim"],
    gain: Float[Tensor, "member dim"],
    shift: Float[Tensor, "member dim"],
    epsilon: float,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "member position dim"], Float[Tensor, "member position dim"]]:
    """s = x + branch + bias, and gain ∘ (s − mean)/√(variance + epsilon) + shift in `dtype`; x is float32."""
    total, normed = _forward(x, branch, bias, gain, shift, epsilon, dtype)
    return total, normed


@torch.library.custom_op("rankscope::add_norm", mutates_args=())
def _forward(
    x: Tensor, branch: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    from rankscope.kernels import add_norm_triton as kernels

    x, branch = x.contiguous(), branch.contiguous()
    total, normed = torch.empty_like(x), torch.empty_like(x, dtype=dtype)
    vectors, strides = zip(*(strided(vector) for vector in (bias, gain, shift)), strict=True)
    grid, sizes = _launch(x)
    kernels.add_norm_forward[grid](x, branch, *vectors, total, normed, *strides, x.shape[1], epsilon, **sizes)
    return total, normed


@torch.library.custom_op("rankscope::add_norm_backward", mutates_args=())
def _backward(
    to_total: Tensor | None,
    to_normed: Tensor,
    total: Tensor,
    gain: Tensor,
    epsilon: float,
    narrow: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x, the same in the numbers of the branch, and (member, 3, dim): those of bias, gain and shift."""
    from rankscope.kernels import add_norm_triton as kernels

    grid, sizes = _launch(total)
    to_x = torch.empty_like(total)
    to_branch = total.new_empty(total.shape if narrow != total.dtype else 0, dtype=narrow)
    parts = total.new_empty(len(total), grid[0], 3, total.shape[2])
    gain, stride = strided(gain)
    kernels.add_norm_backward[grid](
        to_normed.contiguous() if to_total is None else to_total.contiguous(), to_normed.contiguous(), total, gain,
        to_x, to_branch, parts, stride, total.shape[1], epsilon,
        WITH_TOTAL=to_total is not None, NARROW=narrow != total.dtype, **sizes,
    )  # fmt: skip
    return to_x, to_branch, part_sums(parts)


@_forward.register_fake
def _(
    x: Tensor, branch: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=dtype)


@_backward.register_fake
def _(
    to_total: Tensor | None,
    to_normed: Tensor,
    total: Tensor,
    gain: Tensor,
    epsilon: float,
    narrow: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    members, _, dim = total.shape
    to_branch = total.new_empty(total.shape if narrow != total.dtype else 0, dtype=narrow)
    return total.new_empty(total.shape), to_branch, total.new_empty(members, 3, dim)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, branch, _, gain, _, ctx.epsilon, _ = inputs
    ctx.narrow = branch.dtype
    ctx.save_for_backward(output[0], gain)
    ctx.set_materialize_grads(False)  # nothing may go on from the sum, as behind the last layer


def _gradient(ctx, to_total, to_normed):  # type: ignore[no-untyped-def]
    total, gain = ctx.saved_tensors
    to_x, to_branch, vectors = _backward(to_total, to_normed, total, gain, ctx.epsilon, ctx.narrow)
    same = ctx.narrow == total.dtype
    return to_x, to_x if same else to_branch, *vectors.unbind(1), None, None


_forward.register_autograd(_gradient, setup_context=_keep)


def _launch(x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    members, positions, dim = x.shape
    wide = power_of_two(dim)
    rows = max(1, ELEMENTS // wide)
    return (-(-positions // (rows * TURNS)), members), {
        "DIM": dim,
        "WIDE": wide,
        "ROWS": rows,
        "TURNS": TURNS,
    }
