"""The stacked MLP as a torch operator: `rankscope::stacked_mlp`, its hidden layer never in memory.

Weights are float32, arrays may be of 16 bits: weights are rounded once, for both directions, and their gradients come
out in float32. Plain float32 products are not for the matrix units, and other kernels do them better: see `gains`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels.attention import power_of_two, precision

UNITS = 64
LARGEST_WIDTH = 128


def gains(dtype: torch.dtype) -> bool:
    """Whether the matrix units multiply such numbers; without them this kernel is slow."""
    return dtype != torch.float32 or precision() == "tf32"


def stacked_mlp(
    x: Float[Tensor, "member feature position"],
    w_in: Float[Tensor, "member hidden feature"],
    b_in: Float[Tensor, "member hidden"],
    w_out: Float[Tensor, "member feature hidden"],
) -> Float[Tensor, "member feature position"]:
    """W_out relu(W_in x + b_in) of every member."""
    rounded = [weight.detach().to(x.dtype).contiguous() for weight in (w_in, w_out)]
    out: Tensor = _forward(x, w_in, b_in, w_out, *rounded)
    return out


@torch.library.custom_op("rankscope::stacked_mlp", mutates_args=())
def _forward(
    x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, rounded_in: Tensor, rounded_out: Tensor
) -> Tensor:
    """Computed with the rounded weights; the others are there to receive the gradients."""
    from rankscope.kernels import mlp_triton as kernels

    x = x.contiguous()
    y = torch.empty_like(x)
    blocks = -(-x.shape[2] // _rows(x))
    kernels.forward[blocks, len(x)](x, rounded_in, b_in.contiguous(), rounded_out, y, **_sizes(x, w_in))
    return y


@torch.library.custom_op("rankscope::stacked_mlp_backward", mutates_args=())
def _backward(
    grad: Tensor, x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from rankscope.kernels import mlp_triton as kernels

    x, grad, b_in = x.contiguous(), grad.contiguous(), b_in.contiguous()
    grad_x = torch.empty_like(x)
    grads = _room_for_gradients(w_in, b_in, w_out)
    blocks, parts = -(-x.shape[2] // _rows(x)), -(-w_in.shape[1] // UNITS)
    sizes = _sizes(x, w_in)
    kernels.backward_of_input[blocks, len(x)](x, w_in, b_in, w_out, grad, grad_x, **sizes, num_warps=8)
    kernels.backward_of_weights[parts, len(x)](x, w_in, b_in, w_out, grad, *grads, **sizes)
    return grad_x, *grads


@_forward.register_fake
def _(
    x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, rounded_in: Tensor, rounded_out: Tensor
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_backward.register_fake
def _(
    grad: Tensor, x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return grad_x, *_room_for_gradients(w_in, b_in, w_out)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, _, b_in, _, rounded_in, rounded_out = inputs
    ctx.save_for_backward(x, rounded_in, b_in, rounded_out)


def _gradient(ctx, grad):  # type: ignore[no-untyped-def]
    return *_backward(grad, *ctx.saved_tensors), None, None


_forward.register_autograd(_gradient, setup_context=_keep)


def _room_for_gradients(w_in: Tensor, b_in: Tensor, w_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In the numbers of the bias, which is not rounded."""
    return b_in.new_empty(w_in.shape), b_in.new_empty(b_in.shape), b_in.new_empty(w_out.shape)


def _rows(x: Tensor) -> int:
    """Positions of a program: fewer of wide tokens, whose blocks fill the shared memory."""
    return 128 if x.shape[1] <= 64 else 64


def _sizes(x: Tensor, w_in: Tensor) -> dict[str, int | str]:
    _, dim, positions = x.shape
    return {
        "POSITIONS": positions,
        "HIDDEN": w_in.shape[1],
        "DIM": dim,
        "WIDE": max(16, power_of_two(dim)),
        "ROWS": _rows(x),
        "UNITS": UNITS,
        "PRECISION": precision(),
        "num_stages": 3 if dim <= 64 else 2,
    }
