"""Attention over a few tokens by many small heads, which no stock kernel is made for.

Stock kernels take a (token × rank) problem per sample and head. With 8 tokens and rank 1 that is hundreds of
thousands of problems of 64 products each, and their overhead is all the time. On a CPU the sample axis comes last
here, so that every product is one long vector operation, 5 to 7 times as fast; on a GPU one fused kernel does it.

Arrays are (member, channel, position). A member's positions are its samples times its tokens, in the order its way of
attending wants: see `token_first`.
"""

import math
from collections.abc import Sequence
from enum import Enum

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from rankscope import kernels
from rankscope.kernels import attention as fused
from rankscope.kernels.attention import rank_groups


class Way(Enum):
    """How attention is computed: whole-array products, the fused kernel, or torch's own kernel."""

    PRODUCTS = "products"
    FUSED = "fused"
    STOCK = "stock"


def best_way(
    ranks: Sequence[int], tokens: int, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> Way:
    """Products on a CPU; elsewhere the fused kernel where it runs and takes such heads."""
    if torch.device(device).type == "cpu":
        return Way.PRODUCTS
    return Way.FUSED if kernels.usable(device) and fused.fits(ranks, tokens, dtype) else Way.STOCK


def token_first(way: Way, rank: int) -> bool:
    """Whether a member's positions are (token, sample), with samples side by side, or (sample, token)."""
    return way is Way.PRODUCTS or (way is Way.FUSED and fused.token_first(rank))


def attend(
    q: Float[Tensor, "member channel position"],
    k: Float[Tensor, "member channel position"],
    v: Float[Tensor, "member channel position"],
    ranks: Sequence[int],
    tokens: int,
    way: Way,
) -> Float[Tensor, "member channel position"]:
    """v softmax(kᵀq/√rank) in every head of every sample; member m has heads of rank `ranks[m]`."""
    if way is Way.FUSED:
        return fused.short_attention(q, k, v, ranks, tokens)
    compute = by_products if way is Way.PRODUCTS else by_stock_kernel
    samples = q.shape[2] // tokens
    places = (tokens, samples) if token_first(way, max(ranks)) else (samples, tokens)
    contexts = []
    for rank, members in rank_groups(ranks):
        shape = (-1, q.shape[1] // rank, rank, *places)
        heads = (part[members].reshape(shape) for part in (q, k, v))
        contexts.append(compute(*heads).flatten(3).flatten(1, 2))
    return torch.cat(contexts)


def by_products(
    q: Float[Tensor, "member head rank token sample"],
    k: Float[Tensor, "member head rank token sample"],
    v: Float[Tensor, "member head rank token sample"],
) -> Float[Tensor, "member head rank token sample"]:
    """Multiply and sum over whole arrays; needs heads·rank·token²·sample numbers of memory."""
    scores = (q.unsqueeze(4) * k.unsqueeze(3)).sum(2) / math.sqrt(q.shape[2])
    weights = scores.softmax(3)
    return (weights.unsqueeze(2) * v.unsqueeze(3)).sum(4)


def by_stock_kernel(
    q: Float[Tensor, "member head rank sample token"],
    k: Float[Tensor, "member head rank sample token"],
    v: Float[Tensor, "member head rank sample token"],
) -> Float[Tensor, "member head rank sample token"]:
    """The same by `scaled_dot_product_attention`, a problem a sample and head."""
    members, heads, rank, samples, tokens = q.shape
    q, k, v = (part.permute(0, 3, 1, 4, 2).flatten(0, 1) for part in (q, k, v))
    context: Tensor = functional.scaled_dot_product_attention(q, k, v)
    return context.view(members, samples, heads, tokens, rank).permute(0, 2, 4, 1, 3)
