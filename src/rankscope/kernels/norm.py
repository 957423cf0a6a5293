"""Residual, bias and the one-scalar norm in one pass: `rankscope::residual_norm`."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels.attention import power_of_two

BLOCK = 64
SMALLEST = 1e-24
"""Least squared length a token is divided by: a zero token stays zero, as in `functional.normalize`."""


def residual_norm(
    x: Float[Tensor, "member feature position"],
    branch: Float[Tensor, "member feature position"],
    bias: Float[Tensor, "member feature"],
    scale: Float[Tensor, " member"],
) -> Float[Tensor, "member feature position"]:
    """scale · z/‖z‖ with z = x + branch + bias   [amsel2024, RMSNorm]"""
    y: Tensor = _forward(x, branch, bias, scale)
    return y


@torch.library.custom_op("rankscope::residual_norm", mutates_args=())
def _forward(x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    from rankscope.kernels import norm_triton as kernels

    x, branch = x.contiguous(), branch.contiguous()
    y = torch.empty_like(x)
    members, dim, positions = x.shape
    kernels.forward[-(-positions // BLOCK), members](
        x, branch, bias.contiguous(), scale.contiguous(), y, positions, SMALLEST,
        DIM=dim, WIDE=power_of_two(dim), BLOCK=BLOCK,
    )  # fmt: skip
    return y


@torch.library.custom_op("rankscope::residual_norm_backward", mutates_args=())
def _backward(
    grad: Tensor, x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from rankscope.kernels import norm_triton as kernels

    x, branch = x.contiguous(), branch.contiguous()
    members, dim, positions = x.shape
    blocks = -(-positions // BLOCK)
    grad_z = torch.empty_like(x)
    grad_bias = x.new_empty(members, blocks, dim, dtype=torch.float32)
    grad_scale = x.new_empty(members, blocks, dtype=torch.float32)
    kernels.backward[blocks, members](
        x, branch, bias.contiguous(), scale.contiguous(), grad.contiguous(), grad_z, grad_bias, grad_scale,
        positions, SMALLEST, DIM=dim, WIDE=power_of_two(dim), BLOCK=BLOCK,
    )  # fmt: skip
    return grad_z, grad_bias.sum(1).to(bias.dtype), grad_scale.sum(1).to(scale.dtype)


@_forward.register_fake
def _(x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_backward.register_fake
def _(grad: Tensor, x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format),
        bias.new_empty(bias.shape),
        scale.new_empty(scale.shape),
    )


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _gradient(ctx, grad):  # type: ignore[no-untyped-def]
    grad_z, grad_bias, grad_scale = _backward(grad, *ctx.saved_tensors)
    return grad_z, grad_z, grad_bias, grad_scale


_forward.register_autograd(_gradient, setup_context=_keep)
