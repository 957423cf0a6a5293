"""A layer's heads as one member of `small_attention`: for short sequences, where stock kernels are mostly overhead.

Features come first and positions last, so that the projections write what the kernel reads, and no head is copied.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from rankscope.core import InputError
from rankscope.kernels.attention import LARGEST_RANK, LONGEST
from rankscope.kernels.small_attention import Way, attend, best_way, token_first

if TYPE_CHECKING:
    from rankscope.attention.layer import RankAttention

Affine = tuple[Tensor, Tensor | None]
"""A weight and a bias."""

GAINS = ((4, 64), (8, 16))
"""Up to this rank, up to so many tokens, the fused kernel is the faster one in a layer: see docs/rank-attention.md."""


def way_of(layer: "RankAttention", query: Tensor, key: Tensor, batch_first: bool, *, plain: bool) -> Way:
    """The layer's `way` if it has one; else the fused kernel on a GPU that has it, where it applies and is the faster.

    plain   softmax, no weights returned, nothing masked or dropped
    """
    samples, tokens = key.shape[:2] if batch_first else key.shape[1::-1]
    alike = layer.rank == layer.value_rank and layer.heads == layer.kv_heads
    takes = plain and alike and query.shape[:2] == key.shape[:2] and query.numel() > 0 and not _transformed()
    best = best_way([layer.rank], tokens, query.device, _number(query), samples) if takes else Way.STOCK
    if layer.way is None:
        gains = any(layer.rank <= rank and tokens <= longest for rank, longest in GAINS)
        return Way.FUSED if best is Way.FUSED and gains else Way.STOCK
    if layer.way is not Way.STOCK and not takes:
        raise InputError(
            f"way={layer.way.value} computes softmax of as many queries as keys, without masks, dropout or "
            "weights returned, in heads with rank = value_rank and kv_heads = heads, and not inside torch.func or "
            "forward-mode differentiation. Change the call (need_weights=False), or leave way out."
        )
    if layer.way is Way.FUSED and best is not Way.FUSED:
        raise InputError(
            f"way=fused needs a CUDA device with Triton, rank ≤ {LARGEST_RANK}, at most {LONGEST} tokens, float32 or "
            f"less and a moderate batch; this is rank {layer.rank}, {samples} × {tokens} tokens of {query.dtype} on "
            f"{query.device}. Leave way out."
        )
    return layer.way


def attend_as_member(
    layer: "RankAttention", query: Tensor, key: Tensor, value: Tensor, batch_first: bool, way: Way
) -> Tensor:
    """The layer's output; tokens are (batch, token, dim), or token first, and so is it."""
    assert layer.w_q is not None
    swap = token_first(way, layer.rank) == batch_first
    tokens = key.shape[1 if batch_first else 0]
    factor = layer.scale * math.sqrt(layer.rank)
    projections = _scaled(layer.w_q, factor), _scaled(layer.w_k), _scaled(layer.w_v)
    alike = len({bias is None for _, bias in projections}) == 1
    if query is key is value and alike:
        qkv = _project(*_stacked(projections), _features_first(query, swap))
    else:
        arrays = (_features_first(array, swap) for array in (query, key, value))
        qkv = torch.cat([_project(*one, x) for one, x in zip(projections, arrays, strict=True)])
    context = attend(qkv.unsqueeze(0), [layer.rank], tokens, way).squeeze(0)
    output = functional.linear(context.mT, layer.w_o.weight / layer.blocks, layer.w_o.bias)
    first, second = query.shape[:2]
    return output.view(second, first, -1).transpose(0, 1) if swap else output.view(first, second, -1)


def _features_first(tokens: Tensor, swap: bool) -> Tensor:
    """(a, b, dim) → (dim, position), positions being (a, b), or (b, a) where they swap."""
    return (tokens.transpose(0, 1) if swap else tokens).flatten(0, 1).mT


def _scaled(projection: nn.Linear, factor: float = 1.0) -> Affine:
    """factor · (W, b)"""
    weight, bias = projection.weight, projection.bias
    if factor == 1:
        return weight, bias
    return factor * weight, None if bias is None else factor * bias


def _stacked(projections: Sequence[Affine]) -> Affine:
    """The projections below each other, as one."""
    weights, biases = zip(*projections, strict=True)
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def _project(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """W x + b"""
    return weight @ x if bias is None else torch.addmm(bias.unsqueeze(-1), weight, x)


def _number(tokens: Tensor) -> torch.dtype:
    """The dtype that products of these tokens have; autocast leaves float64 alone."""
    kind = tokens.device.type
    casts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if casts and tokens.dtype != torch.float64 else tokens.dtype


def _transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work: they have no rule for our operators."""
    if torch.compiler.is_compiling():
        return False
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None
