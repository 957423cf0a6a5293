"""The fused attention as a torch operator: `rankscope::short_attention`, with its gradient.

q, k, v are read once and the result written once; nothing of size heads × tokens × tokens touches memory. They are one
array, as one projection writes them, and so is their gradient. One call serves members of different rank: their channels
are cut into heads differently, and that is all.

A member's positions, samples times tokens, are ordered as its kernel needs them: `token_first(rank)`.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError
from rankscope.kernels import KINDS

LARGEST_RANK = 64
LONGEST = 256
BY_PRODUCTS = 4
"""Up to this rank the matrix units, which take 16 channels, would mostly multiply padding."""

SMALLEST_SIDE = 16
"""Of a block that the matrix units take."""

ROWS = 64
"""Most tokens of a block on the matrix units. A program takes that many positions, whole samples, or twice that."""

WARPS = 4
"""Of a program on the matrix units, at most."""

LANES = 128
"""Threads of a program by products. A sample has one, or several that share its queries: at most a warp's 32."""

QUERIES = {1: 16, 2: 8, 3: 8, 4: 8}
"""By rank, most queries of a thread by products."""

FORWARD_KEYS = {1: 16, 2: 16, 3: 8, 4: 8}
BACKWARD_KEYS = {1: 8, 2: 4, 3: 2, 4: 2}
"""By rank, most keys that pass by at a time."""

REGISTERS = {1: 128, 2: 128, 3: 168, 4: 168}
"""By rank, of a thread: fewer than the compiler would take, so that more programs run.

These four were tried on an H200 at ranks 1, 2 and 4.
"""

MOST_PROGRAMS = 65_535
"""Along the second axis of a launch."""


def rank_groups(ranks: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Each rank with the members that have it, side by side.

    >>> list(rank_groups([1, 1, 4]))
    [(1, slice(0, 2, None)), (4, slice(2, 3, None))]
    """
    start = 0
    for rank, members in groupby(ranks):
        count = len(list(members))
        yield rank, slice(start, start + count)
        start += count


def fits(ranks: Sequence[int], tokens: int, dtype: torch.dtype, samples: int = 1) -> bool:
    """Whether the kernel takes such heads, over so many samples."""
    if max(ranks) > LARGEST_RANK or tokens > LONGEST or dtype not in KINDS:
        return False
    float32_as = "ieee" if dtype == torch.float32 else None  # it has the most programs
    launches = [_Group(rank, tokens, samples, 1, rank, float32_as, arrays=()) for rank in set(ranks)]
    return all(launch.blocks <= MOST_PROGRAMS for launch in launches)


def token_first(rank: int) -> bool:
    """Whether positions of a member with heads of this rank are (token, sample); else they are (sample, token)."""
    return rank <= BY_PRODUCTS


def short_attention(
    qkv: Float[Tensor, "member 3*channel position"], ranks: Sequence[int], tokens: int
) -> Float[Tensor, "member channel position"]:
    """v softmax(kᵀq/√rank) in every head of every sample; member m has heads of rank `ranks[m]`.

    qkv   the channels of q, then those of k, then those of v
    """
    _check(qkv, ranks, tokens)
    out: Tensor = _forward(qkv, list(ranks), tokens)[0]
    return out


@torch.library.custom_op("rankscope::short_attention", mutates_args=())
def _forward(qkv: Tensor, ranks: list[int], tokens: int) -> tuple[Tensor, Tensor]:
    """The result, and log₂ Σ exp2 of every row's scores, which the gradient needs."""
    from rankscope.kernels import attention_triton as kernels

    qkv = qkv.contiguous()
    out, lse = _room_for_out(qkv), _room_for_lse(qkv, ranks)
    for group in _groups((*qkv.chunk(3, dim=1), out), lse, ranks, tokens):
        if token_first(group.rank):
            kernels.forward_by_products[group.heads, group.blocks](
                *group.arrays, *group.sizes, **group.by_products(FORWARD_KEYS[group.rank])
            )
        else:
            kernels.forward_by_matrices[group.heads, group.blocks](
                *group.arrays, *group.sizes, **group.by_matrices()
            )
    return out, lse


@torch.library.custom_op("rankscope::short_attention_backward", mutates_args=())
def _backward(grad: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, ranks: list[int], tokens: int) -> Tensor:
    from rankscope.kernels import attention_triton as kernels

    qkv, grad = qkv.contiguous(), grad.contiguous()
    found = torch.empty_like(qkv)
    arrays = (*qkv.chunk(3, dim=1), out, grad, *found.chunk(3, dim=1))
    for group in _groups(arrays, lse, ranks, tokens):
        *inputs, pull, to_q, to_k, to_v, level = group.arrays
        if token_first(group.rank):
            fixed = group.by_products(BACKWARD_KEYS[group.rank])
            kernels.backward_by_products[group.heads, group.blocks](
                *inputs, level, pull, to_q, to_k, to_v, *group.sizes, **fixed
            )
        else:
            kernels.backward_by_matrices[group.heads, group.sample_blocks](
                *inputs, level, pull, to_q, to_k, to_v, *group.sizes, **group.by_matrices()
            )
    return found


@_forward.register_fake
def _(qkv: Tensor, ranks: list[int], tokens: int) -> tuple[Tensor, Tensor]:
    return _room_for_out(qkv), _room_for_lse(qkv, ranks)


@_backward.register_fake
def _(grad: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, ranks: list[int], tokens: int) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, ctx.ranks, ctx.tokens = inputs
    ctx.save_for_backward(qkv, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or zeros would be written for the second output


def _gradient(ctx, grad, _):  # type: ignore[no-untyped-def]
    return _backward(grad, *ctx.saved_tensors, ctx.ranks, ctx.tokens), None, None


_forward.register_autograd(_gradient, setup_context=_keep)


def _check(qkv: Tensor, ranks: Sequence[int], tokens: int) -> None:
    """The kernel itself would read and write beside the arrays."""
    members, rows, positions = qkv.shape
    if len(ranks) != members:
        raise InputError(
            f"short_attention: {members} members and {len(ranks)} ranks. Give a rank for each member."
        )
    if min(ranks) < 1 or any(rows % (3 * rank) for rank in ranks):
        raise InputError(
            f"short_attention: {rows} rows are no 3 · heads · rank for every rank among {sorted(set(ranks))}."
        )
    if tokens < 1 or positions % tokens:
        raise InputError(f"short_attention: {positions} positions are no whole samples of {tokens} tokens.")
    if not fits(ranks, tokens, qkv.dtype, positions // tokens):
        raise InputError(
            f"short_attention takes rank ≤ {LARGEST_RANK}, at most {LONGEST} tokens, float32 or 16 bits, and samples that "
            f"{MOST_PROGRAMS:,} programs hold; this is rank {max(ranks)}, {positions // tokens:,} samples of {tokens} tokens, "
            f"{qkv.dtype}. Use Way.STOCK."
        )
    if not qkv.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError(
            f"short_attention needs a CUDA device, not {qkv.device}. Use Way.PRODUCTS or Way.STOCK."
        )


@dataclass(frozen=True)
class _Group:
    """Members of one rank: their parts of the arrays, and the sizes of a launch.

    float32_as   how numbers are multiplied if they are float32
    hopper       whether the device is an H100 or H200
    """

    rank: int
    tokens: int
    samples: int
    members: int
    channels: int
    float32_as: str | None
    arrays: tuple[Tensor, ...]
    hopper: bool = False

    @property
    def heads(self) -> int:
        return self.members * self.channels // self.rank

    @property
    def sizes(self) -> tuple[int, int, int, float]:
        """Samples, heads of a member, what lies between a member's queries and the next one's, and the scores' factor."""
        between = 2 * self.channels * self.samples * self.tokens
        return self.samples, self.channels // self.rank, between, 1 / math.sqrt(self.rank)

    @property
    def share(self) -> int:
        """Lanes of a sample by products: each keeps a part of its queries in registers."""
        return power_of_two(-(-self.tokens // QUERIES[self.rank]))

    @property
    def lanes(self) -> int:
        return min(LANES, self.share * power_of_two(self.samples))

    @property
    def alone(self) -> bool:
        """Whether a program on the matrix units has one sample: a warp's registers would not hold it, so warps share it."""
        return self.tokens > ROWS // 2

    @property
    def rows(self) -> int:
        """Tokens of a block on the matrix units; half as many where float32 would not fit registers and shared memory."""
        fewer = self.float32_as is not None and self.rank > LARGEST_RANK // 2 and not self.hopper
        return min(ROWS // 2 if fewer else ROWS, max(SMALLEST_SIDE, power_of_two(self.tokens)))

    @property
    def together(self) -> int:
        """Samples of a program on the matrix units: ROWS positions, up to rank 16 twice that, or one sample alone."""
        return 1 if self.alone else (2 * ROWS if self.rank <= SMALLEST_SIDE else ROWS) // self.rows

    @property
    def warps(self) -> int:
        """Of a program on the matrix units.

        In a batch a warp has whole samples: if there were more warps than samples, some would compute the same. One sample
        alone is cut into rows.
        """
        return WARPS if self.alone else min(WARPS, self.together)

    @property
    def sample_blocks(self) -> int:
        return -(-self.samples // self.together)

    @property
    def blocks(self) -> int:
        """Of lanes, or on the matrix units of samples and queries: the forward's second axis, which is the longest."""
        if token_first(self.rank):
            return -(-self.samples * self.share // self.lanes)
        return self.sample_blocks * -(-self.tokens // self.rows)

    def by_products(self, most_keys: int) -> dict[str, int]:
        """Keys in blocks of one size, as far as they go."""
        return {
            "TOKENS": self.tokens,
            "RANK": self.rank,
            "COUNT": -(-self.tokens // self.share),
            "SHARE": self.share,
            "LANES": self.lanes,
            "KEYS": -(-self.tokens // -(-self.tokens // most_keys)),
            "num_warps": max(1, self.lanes // 32),
            "maxnreg": REGISTERS[self.rank],
        }

    def by_matrices(self) -> dict[str, int | str]:
        """Plain float32 as three products in TF32, of 11 bits and the next 11: the matrix units have no other way to it."""
        exactly = self.float32_as == "ieee"
        return {
            "TOKENS": self.tokens,
            "RANK": self.rank,
            "RANKS": max(SMALLEST_SIDE, power_of_two(self.rank)),
            "ROWS": self.rows,
            "SAMPLES": self.together,
            "PRECISION": "tf32x3" if exactly else "tf32",  # of no meaning to 16 bits
            "num_warps": self.warps,
            "num_stages": 2 if exactly else 3,
        }


def _groups(arrays: Sequence[Tensor], lse: Tensor, ranks: Sequence[int], tokens: int) -> Iterator[_Group]:
    _, channels, positions = arrays[0].shape
    float32_as = precision() if arrays[0].dtype == torch.float32 else None
    hopper = arrays[0].is_cuda and torch.cuda.get_device_capability(arrays[0].device)[0] == 9
    start = 0
    for rank, members in rank_groups(ranks):
        count = members.stop - members.start
        rows = slice(start, start + count * (channels // rank) * positions)
        start = rows.stop
        parts = (*(array[members] for array in arrays), lse[rows])
        yield _Group(rank, tokens, positions // tokens, count, channels, float32_as, parts, hopper)


def _room_for_out(qkv: Tensor) -> Tensor:
    members, channels, positions = qkv.shape
    return qkv.new_empty(members, channels // 3, positions)


def _room_for_lse(qkv: Tensor, ranks: Sequence[int]) -> Tensor:
    """A number a head and position, members of different rank one after the other."""
    heads = sum(qkv.shape[1] // 3 // rank for rank in ranks)
    return qkv.new_empty(heads * qkv.shape[2], dtype=torch.float32)


def power_of_two(number: int) -> int:
    """The least power of two that is no smaller.

    >>> [power_of_two(number) for number in (1, 3, 16)]
    [1, 4, 16]
    """
    return 1 << max(0, (number - 1).bit_length())


def precision() -> str:
    """float32 products as torch is configured to compute them: exactly, or by the matrix units in TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
