"""The squared error of every member in one pass: `rankscope::squared_error`."""

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK = 4096


def squared_error(
    output: Float[Tensor, "member feature position"], answer: Float[Tensor, "member feature position"]
) -> Float[Tensor, " member"]:
    """Mean over positions of ‖output − answer‖², summed over features; no gradient for the answer."""
    error: Tensor = _forward(output, answer)
    return error


@torch.library.custom_op("rankscope::squared_error", mutates_args=())
def _forward(output: Tensor, answer: Tensor) -> Tensor:
    from rankscope.kernels import error_triton as kernels

    output, answer = output.contiguous(), answer.contiguous()
    count = output[0].numel()
    sums = output.new_empty(len(output), -(-count // BLOCK), dtype=torch.float32)
    kernels.forward[sums.shape[1], len(output)](output, answer, sums, COUNT=count, BLOCK=BLOCK)
    return sums.sum(1) / output.shape[2]


@torch.library.custom_op("rankscope::squared_error_backward", mutates_args=())
def _backward(pull: Tensor, output: Tensor, answer: Tensor) -> Tensor:
    from rankscope.kernels import error_triton as kernels

    output, answer = output.contiguous(), answer.contiguous()
    grad, count = torch.empty_like(output), output[0].numel()
    kernels.backward[-(-count // BLOCK), len(output)](
        output, answer, pull.contiguous(), grad, 2 / output.shape[2], COUNT=count, BLOCK=BLOCK
    )
    return grad


@_forward.register_fake
def _(output: Tensor, answer: Tensor) -> Tensor:
    return output.new_empty(len(output), dtype=torch.float32)


@_backward.register_fake
def _(pull: Tensor, output: Tensor, answer: Tensor) -> Tensor:
    return torch.empty_like(output, memory_format=torch.contiguous_format)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _gradient(ctx, pull):  # type: ignore[no-untyped-def]
    return _backward(pull, *ctx.saved_tensors), None


_forward.register_autograd(_gradient, setup_context=_keep)
