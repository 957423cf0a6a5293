"""The stacked MLP as a torch operator: `rankscope::stacked_mlp`, its hidden layer never in memory.

Weights are float32, arrays may be bfloat16: weights are rounded on the way in, their gradients come out in float32.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels.attention import power_of_two, precision

UNITS = 64
LARGEST_WIDTH = 128


def stacked_mlp(
    x: Float[Tensor, "member feature position"],
    w_in: Float[Tensor, "member hidden feature"],
    b_in: Float[Tensor, "member hidden"],
    w_out: Float[Tensor, "member feature hidden"],
) -> Float[Tensor, "member feature position"]:
    """W_out relu(W_in x + b_in) of every member."""
    out: Tensor = _forward(x, w_in, b_in, w_out)
    return out


@torch.library.custom_op("rankscope::stacked_mlp", mutates_args=())
def _forward(x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor) -> Tensor:
    from rankscope.kernels import mlp_triton as kernels

    x = x.contiguous()
    y = torch.empty_like(x)
    blocks = -(-x.shape[2] // _rows(x))
    kernels.forward[blocks, len(x)](x, *_rounded(x, w_in, b_in, w_out), y, **_sizes(x, w_in))
    return y


@torch.library.custom_op("rankscope::stacked_mlp_backward", mutates_args=())
def _backward(
    grad: Tensor, x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from rankscope.kernels import mlp_triton as kernels

    x, grad = x.contiguous(), grad.contiguous()
    weights = _rounded(x, w_in, b_in, w_out)
    grad_x = torch.empty_like(x)
    grads = [torch.empty(weight.shape, dtype=weight.dtype, device=x.device) for weight in (w_in, b_in, w_out)]
    blocks, parts = -(-x.shape[2] // _rows(x)), -(-w_in.shape[1] // UNITS)
    sizes = _sizes(x, w_in)
    kernels.backward_of_input[blocks, len(x)](x, *weights, grad, grad_x, **sizes, num_warps=8)
    kernels.backward_of_weights[parts, len(x)](x, *weights, grad, *grads, **sizes)
    return grad_x, *grads  # type: ignore[return-value]


@_forward.register_fake
def _(x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_backward.register_fake
def _(
    grad: Tensor, x: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    like = (torch.empty(weight.shape, dtype=weight.dtype, device=x.device) for weight in (w_in, b_in, w_out))
    return torch.empty_like(x, memory_format=torch.contiguous_format), *like  # type: ignore[return-value]


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _gradient(ctx, grad):  # type: ignore[no-untyped-def]
    return _backward(grad, *ctx.saved_tensors)


_forward.register_autograd(_gradient, setup_context=_keep)


def _rounded(x: Tensor, *weights: Tensor) -> list[Tensor]:
    return [weight.to(x.dtype).contiguous() for weight in weights]


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
