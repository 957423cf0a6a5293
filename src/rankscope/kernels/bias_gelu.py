"""A bias and the tanh-GELU behind it in one pass: `rankscope::bias_gelu`, with its gradient."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels.attention import power_of_two
from rankscope.kernels.vectors import part_sums, strided

COLUMNS, ROWS = 128, 16
"""Of a program's block, at most."""

TURNS = 8
"""Blocks of a program: the bias's gradient is summed up over them before it is written."""


def bias_gelu(
    x: Float[Tensor, "member position hidden"], bias: Float[Tensor, "member hidden"]
) -> Float[Tensor, "member position hidden"]:
    """z·σ(√(8/π)·(z + 0.044715 z³)) with z = x + bias, which is GPT-2's GELU, in the numbers of x."""
    out: Tensor = _forward(x, bias)
    return out


@torch.library.custom_op("rankscope::bias_gelu", mutates_args=())
def _forward(x: Tensor, bias: Tensor) -> Tensor:
    from rankscope.kernels import bias_gelu_triton as kernels

    x = x.contiguous()
    out = torch.empty_like(x)
    grid, sizes = _launch(x)
    kernels.bias_gelu_forward[grid](x, *strided(bias), out, x.shape[1], **sizes)
    return out


@torch.library.custom_op("rankscope::bias_gelu_backward", mutates_args=())
def _backward(pull: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    from rankscope.kernels import bias_gelu_triton as kernels

    x = x.contiguous()
    grid, sizes = _launch(x)
    to_x = torch.empty_like(x)
    parts = bias.new_empty(len(x), grid[0], x.shape[2])
    kernels.bias_gelu_backward[grid](pull.contiguous(), x, *strided(bias), to_x, parts, x.shape[1], **sizes)
    return to_x, part_sums(parts)


@_forward.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@_backward.register_fake
def _(pull: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _gradient(ctx, pull):  # type: ignore[no-untyped-def]
    return _backward(pull, *ctx.saved_tensors)


_forward.register_autograd(_gradient, setup_context=_keep)


def _launch(x: Tensor) -> tuple[tuple[int, int, int], dict[str, int]]:
    members, positions, hidden = x.shape
    columns = min(COLUMNS, power_of_two(hidden))
    sizes = {"HIDDEN": hidden, "COLUMNS": columns, "ROWS": ROWS, "TURNS": TURNS}
    return (-(-positions // (ROWS * TURNS)), -(-hidden // columns), members), sizes
