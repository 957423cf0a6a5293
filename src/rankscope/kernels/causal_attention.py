"""Causal attention as a torch operator: `rankscope::causal_attention`, with its gradient.

q, k, v are one array, as one projection of tokens writes them, and so is their gradient: nothing is cut, transposed or joined
on the way, and nothing of size heads × tokens × tokens touches memory.
"""

import math
import os

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope import kernels
from rankscope.core import InputError
from rankscope.kernels.attention import MOST_PROGRAMS, power_of_two, precision

LARGEST_RANK = 64
SMALLEST_SIDE = 16
"""Of a block that the matrix units take."""

ROWS, LONG, MANY_ROWS = 32, 128, 64
"""Tokens of a block; of longer sequences in 16 bits the blocks are larger."""

MOST_WARPS = 8


def gains(rank: int, samples: int, dtype: torch.dtype, device: torch.device | str) -> bool:
    """Whether the kernel is there, takes such heads, and is faster than torch's own."""
    return (
        kernels.usable(device)
        and rank <= LARGEST_RANK
        and samples <= MOST_PROGRAMS
        and dtype in kernels.KINDS
    )


def causal_attention(
    qkv: Float[Tensor, "member position 3*inner"], rank: int, tokens: int
) -> Float[Tensor, "member position inner"]:
    """softmax(q kᵀ/√rank) v over a token and those before it, in every head of every sample; positions are (sample, token).

    qkv   the channels of q, then those of k, then those of v; each is heads times `rank` of them
    """
    _check(qkv, rank, tokens)
    out: Tensor = _forward(qkv, rank, tokens)[0]
    return out


@torch.library.custom_op("rankscope::causal_attention", mutates_args=())
def _forward(qkv: Tensor, rank: int, tokens: int) -> tuple[Tensor, Tensor]:
    """The result, and log₂ Σ exp2 of every row's scores, which the gradient needs."""
    from rankscope.kernels import causal_attention_triton as triton_kernels

    qkv = qkv.contiguous()
    out, lse = _room_for_out(qkv), _room_for_lse(qkv, rank)
    grid, sizes, fixed = _launch(qkv, rank, tokens)
    triton_kernels.forward[grid](qkv, out, lse, *sizes, **fixed)
    return out, lse


@torch.library.custom_op("rankscope::causal_attention_backward", mutates_args=())
def _backward(pull: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, rank: int, tokens: int) -> Tensor:
    from rankscope.kernels import causal_attention_triton as triton_kernels

    qkv, pull = qkv.contiguous(), pull.contiguous()
    grad = torch.empty_like(qkv)
    grid, sizes, fixed = _launch(qkv, rank, tokens)
    triton_kernels.backward[grid](qkv, out, lse, pull, grad, *sizes, **fixed)
    return grad


@_forward.register_fake
def _(qkv: Tensor, rank: int, tokens: int) -> tuple[Tensor, Tensor]:
    return _room_for_out(qkv), _room_for_lse(qkv, rank)


@_backward.register_fake
def _(pull: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, rank: int, tokens: int) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, ctx.rank, ctx.tokens = inputs
    ctx.save_for_backward(qkv, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or zeros would be written for the second output


def _gradient(ctx, pull, _):  # type: ignore[no-untyped-def]
    return _backward(pull, *ctx.saved_tensors, ctx.rank, ctx.tokens), None, None


_forward.register_autograd(_gradient, setup_context=_keep)


def _launch(
    qkv: Tensor, rank: int, tokens: int
) -> tuple[tuple[int, int], tuple[int, int, int, float], dict[str, int | str]]:
    """Programs, the sizes that they are told, and those that they are compiled for."""
    members, positions, width = qkv.shape
    inner, samples = width // 3, positions // tokens
    ranks = max(SMALLEST_SIDE, power_of_two(rank))
    many = tokens > LONG and qkv.dtype != torch.float32
    rows = min(MANY_ROWS if many else ROWS, max(SMALLEST_SIDE, power_of_two(tokens)))
    warps = max(1, ranks * rows // (SMALLEST_SIDE * ROWS))
    return (
        (members * inner // rank, samples),
        (samples, inner // rank, tokens, 1 / math.sqrt(rank)),
        {
            "RANK": rank,
            "RANKS": ranks,
            "INNER": inner,
            "ROWS": rows,
            "BLOCKS": -(-tokens // rows),
            "PRECISION": "tf32x3" if precision() == "ieee" else "tf32",  # of no meaning to 16 bits
            "num_warps": min(MOST_WARPS, power_of_two(warps)),
        },
    )


def _check(qkv: Tensor, rank: int, tokens: int) -> None:
    """The kernel itself would read and write beside the arrays."""
    _, positions, width = qkv.shape
    if rank < 1 or width % (3 * rank):
        raise InputError(f"causal_attention: {width} channels are no 3 · heads · rank {rank}.")
    if tokens < 1 or positions % tokens:
        raise InputError(f"causal_attention: {positions} positions are no whole samples of {tokens} tokens.")
    if rank > LARGEST_RANK or positions // tokens > MOST_PROGRAMS or qkv.dtype not in kernels.KINDS:
        raise InputError(
            f"causal_attention takes rank ≤ {LARGEST_RANK}, at most {MOST_PROGRAMS:,} samples, float32 or 16 bits; this is "
            f"rank {rank}, {positions // tokens:,} samples, {qkv.dtype}. Use scaled_dot_product_attention."
        )
    if not qkv.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError(
            f"causal_attention needs a CUDA device, not {qkv.device}. Use scaled_dot_product_attention."
        )


def _room_for_out(qkv: Tensor) -> Tensor:
    return qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)


def _room_for_lse(qkv: Tensor, rank: int) -> Tensor:
    """A number a head and position."""
    members, positions, width = qkv.shape
    return qkv.new_empty(members * (width // 3 // rank) * positions, dtype=torch.float32)
