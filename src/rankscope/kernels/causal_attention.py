"""Causal attention as a torch operator: `rankscope::causal_attention`, with its gradient.

q, k, v are one array, as one projection of tokens writes them, and so is their gradient: nothing is cut, transposed or joined
on the way, and nothing of size heads × tokens × tokens touches memory. The projection's bias is added as q, k and v are read,
and the sums are rounded to the numbers of the array, as torch's own addition would; its gradient is summed up where theirs is
written. One call serves members of different rank. Each rank has a launch of its own; few large heads leave most of a GPU
idle, so the launches go side by side, in streams of their own.
"""

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope import kernels
from rankscope.core import InputError
from rankscope.kernels.attention import MOST_PROGRAMS, power_of_two, precision, rank_groups
from rankscope.kernels.vectors import part_sums, strided

LARGEST_RANK, LARGEST_IN_FLOAT32 = 256, 64
SMALLEST_SIDE = 16
"""Of a block that the matrix units take."""

ROWS, LONG, MANY_ROWS = 32, 128, 64
"""Tokens of a block; of longer sequences in 16 bits the blocks are larger."""

WIDE, FEW_ROWS = 64, 16
"""Heads of more rank have smaller blocks: more of them would not fit into a program's registers."""

MOST_WARPS = 8

_SIDE = threading.local()
"""Streams of a thread: another thread may be capturing a graph in its own."""


def gains(rank: int, samples: int, dtype: torch.dtype, device: torch.device | str) -> bool:
    """Whether the kernel is there and takes such heads.

    Up to rank 64 it is faster than torch's own. Larger heads are few, and gain by being in one call with the others.
    """
    return (
        kernels.usable(device)
        and rank <= _largest(dtype)
        and samples <= MOST_PROGRAMS
        and dtype in kernels.KINDS
    )


def causal_attention(
    qkv: Float[Tensor, "member position 3*inner"],
    bias: Float[Tensor, "member 3*inner"],
    ranks: Sequence[int],
    tokens: int,
) -> Float[Tensor, "member position inner"]:
    """softmax(q kᵀ/√rank) v over a token and those before it, in every head of every sample; positions are (sample, token).

    qkv    the channels of q, then those of k, then those of v; member m has heads of `ranks[m]` of them
    bias   what is added to them first, in float32
    """
    _check(qkv, bias, ranks, tokens)
    out: Tensor = _forward(qkv, bias, list(ranks), tokens)[0]
    return out


@torch.library.custom_op("rankscope::causal_attention", mutates_args=())
def _forward(qkv: Tensor, bias: Tensor, ranks: list[int], tokens: int) -> tuple[Tensor, Tensor]:
    """The result, and log₂ Σ exp2 of every row's scores, which the gradient needs."""
    from rankscope.kernels import causal_attention_triton as triton_kernels

    qkv, (bias, stride) = qkv.contiguous(), strided(bias)
    out, lse = _room_for_out(qkv), _room_for_lse(qkv, ranks)
    for launch in _side_by_side(qkv, ranks, tokens):
        of = launch.members
        triton_kernels.causal_attention_forward[launch.grid](
            qkv[of], bias[of], out[of], lse[launch.levels], stride, *launch.sizes, **launch.fixed
        )
    return out, lse


@torch.library.custom_op("rankscope::causal_attention_backward", mutates_args=())
def _backward(
    pull: Tensor, qkv: Tensor, bias: Tensor, out: Tensor, lse: Tensor, ranks: list[int], tokens: int
) -> tuple[Tensor, Tensor]:
    """The gradients of q, k, v and of their bias."""
    from rankscope.kernels import causal_attention_triton as triton_kernels

    qkv, pull, (bias, stride) = qkv.contiguous(), pull.contiguous(), strided(bias)
    grad = torch.empty_like(qkv)
    parts = bias.new_empty(len(qkv), qkv.shape[1] // tokens, qkv.shape[2])
    for launch in _side_by_side(qkv, ranks, tokens):
        of = launch.members
        triton_kernels.causal_attention_backward[launch.grid](
            qkv[of], bias[of], out[of], lse[launch.levels], pull[of], grad[of], parts[of], stride,
            *launch.sizes, **launch.fixed,
        )  # fmt: skip
    return grad, part_sums(parts)


@_forward.register_fake
def _(qkv: Tensor, bias: Tensor, ranks: list[int], tokens: int) -> tuple[Tensor, Tensor]:
    return _room_for_out(qkv), _room_for_lse(qkv, ranks)


@_backward.register_fake
def _(
    pull: Tensor, qkv: Tensor, bias: Tensor, out: Tensor, lse: Tensor, ranks: list[int], tokens: int
) -> tuple[Tensor, Tensor]:
    return qkv.new_empty(qkv.shape), bias.new_empty(bias.shape)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, bias, ctx.ranks, ctx.tokens = inputs
    ctx.save_for_backward(qkv, bias, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or zeros would be written for the second output


def _gradient(ctx, pull, _):  # type: ignore[no-untyped-def]
    return *_backward(pull, *ctx.saved_tensors, ctx.ranks, ctx.tokens), None, None


_forward.register_autograd(_gradient, setup_context=_keep)


@dataclass(frozen=True)
class _Launch:
    """The members of a rank, where their rows' logarithms lie, programs, the sizes that they are told, and the fixed ones."""

    members: slice
    levels: slice
    grid: tuple[int, int]
    sizes: tuple[int, int, int, float]
    fixed: dict[str, int | str]


def _side_by_side(qkv: Tensor, ranks: Sequence[int], tokens: int) -> Iterator[_Launch]:
    """A launch for the members of each rank, to be made in a stream of its own where there are several."""
    groups = list(rank_groups(ranks))
    aside = qkv.is_cuda and len(groups) > 1
    start = 0
    for place, (rank, members) in enumerate(groups):
        grid, sizes, fixed = _launch(qkv[members], rank, tokens)
        stop = start + grid[0] * qkv.shape[1]
        with _aside(place, qkv.device) if aside else nullcontext():
            yield _Launch(members, slice(start, stop), grid, sizes, fixed)
        start = stop
    if aside:
        for stream in _streams(qkv.device, len(groups)):
            torch.cuda.current_stream(qkv.device).wait_stream(stream)


@contextmanager
def _aside(place: int, device: torch.device) -> Iterator[None]:
    """In the stream of that place, after all that the current one has been told so far."""
    stream = _streams(device, place + 1)[place]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """So many streams of this thread."""
    own: dict[torch.device, list[torch.cuda.Stream]] = _SIDE.__dict__.setdefault("streams", {})
    known = own.setdefault(device, [])
    known += [torch.cuda.Stream(device) for _ in range(len(known), count)]  # type: ignore[no-untyped-call]
    return known[:count]


def _launch(
    qkv: Tensor, rank: int, tokens: int
) -> tuple[tuple[int, int], tuple[int, int, int, float], dict[str, int | str]]:
    """Programs, the sizes that they are told, and those that they are compiled for."""
    members, positions, width = qkv.shape
    inner, samples = width // 3, positions // tokens
    ranks = max(SMALLEST_SIDE, power_of_two(rank))
    rows = min(_rows(ranks, tokens, qkv.dtype), max(SMALLEST_SIDE, power_of_two(tokens)))
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


def _largest(dtype: torch.dtype) -> int:
    """Rank of the largest heads: those of float32 take twice the registers."""
    return LARGEST_IN_FLOAT32 if dtype == torch.float32 else LARGEST_RANK


def _rows(ranks: int, tokens: int, dtype: torch.dtype) -> int:
    """Tokens of a block, for so many channels."""
    if ranks > WIDE:
        return FEW_ROWS
    return MANY_ROWS if tokens > LONG and dtype != torch.float32 else ROWS


def _check(qkv: Tensor, bias: Tensor, ranks: Sequence[int], tokens: int) -> None:
    """The kernel itself would read and write beside the arrays."""
    members, positions, width = qkv.shape
    if bias.shape != (members, width) or bias.dtype != torch.float32:
        raise InputError(
            f"causal_attention: a bias of shape {tuple(bias.shape)} in {bias.dtype}. "
            f"Give one of shape ({members}, {width}) in float32."
        )
    if len(ranks) != members:
        raise InputError(
            f"causal_attention: {members} members and {len(ranks)} ranks. Give a rank for each member."
        )
    for rank in ranks:
        if rank < 1 or width % (3 * rank):
            raise InputError(f"causal_attention: {width} channels are no 3 · heads · rank {rank}.")
    if tokens < 1 or positions % tokens:
        raise InputError(f"causal_attention: {positions} positions are no whole samples of {tokens} tokens.")
    largest = _largest(qkv.dtype)
    if max(ranks) > largest or positions // tokens > MOST_PROGRAMS or qkv.dtype not in kernels.KINDS:
        raise InputError(
            f"causal_attention takes rank ≤ {largest}, at most {MOST_PROGRAMS:,} samples, float32 or 16 bits; this is "
            f"rank {max(ranks)}, {positions // tokens:,} samples, {qkv.dtype}. Use scaled_dot_product_attention."
        )
    if not qkv.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError(
            f"causal_attention needs a CUDA device, not {qkv.device}. Use scaled_dot_product_attention."
        )


def _room_for_out(qkv: Tensor) -> Tensor:
    return qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)


def _room_for_lse(qkv: Tensor, ranks: Sequence[int]) -> Tensor:
    """A number a head and position, members of different rank one after the other."""
    heads = sum(qkv.shape[2] // 3 // rank for rank in ranks)
    return qkv.new_empty(heads * qkv.shape[1], dtype=torch.float32)
