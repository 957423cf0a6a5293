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
from torch.autograd.function import once_differentiable
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
    ranks: Sequence[int],
    tokens: int,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    samples: int = 1,
) -> Way:
    """Products on a CPU; elsewhere the fused kernel where it runs and takes such heads."""
    if torch.device(device).type == "cpu":
        return Way.PRODUCTS
    takes = kernels.usable(device) and fused.fits(ranks, tokens, dtype, samples)
    return Way.FUSED if takes else Way.STOCK


def token_first(way: Way, rank: int) -> bool:
    """Whether a member's positions are (token, sample), with samples side by side, or (sample, token)."""
    return way is Way.PRODUCTS or (way is Way.FUSED and fused.token_first(rank))


def attend(
    qkv: Float[Tensor, "member 3*channel position"], ranks: Sequence[int], tokens: int, way: Way
) -> Float[Tensor, "member channel position"]:
    """v softmax(kᵀq/√rank) in every head of every sample; member m has heads of rank `ranks[m]`.

    qkv   the channels of q, then those of k, then those of v
    """
    if way is Way.FUSED:
        return fused.short_attention(qkv, ranks, tokens)
    q, k, v = qkv.chunk(3, dim=1)
    compute = by_products if way is Way.PRODUCTS else by_stock_kernel
    samples = q.shape[2] // tokens
    places = (tokens, samples) if token_first(way, max(ranks)) else (samples, tokens)
    groups = list(rank_groups(ranks))
    sizes = [members.stop - members.start for _, members in groups]
    contexts = []
    for (rank, _), *parts in zip(groups, *(torch.split(part, sizes) for part in (q, k, v)), strict=True):
        shape = (-1, q.shape[1] // rank, rank, *places)
        contexts.append(compute(*(part.reshape(shape) for part in parts)).flatten(3).flatten(1, 2))
    return torch.cat(contexts)


def by_products(
    q: Float[Tensor, "member head rank token sample"],
    k: Float[Tensor, "member head rank token sample"],
    v: Float[Tensor, "member head rank token sample"],
    *,
    causal: bool = False,
) -> Float[Tensor, "member head rank token sample"]:
    """Multiply and add whole arrays, a channel or a token at a time; needs heads·token²·sample numbers of memory.

    causal   a token attends to itself and to those before it
    """
    out: Tensor = _Products.apply(q, k, v, causal)  # type: ignore[no-untyped-call]
    return out


class _Products(torch.autograd.Function):
    """p = softmax over keys of s = kᵀq/√rank; out = v p, and the gradient, written out: the time is passes over arrays.

    Inside, arrays are (rank, token, member, head, sample): products broadcast over the two axes in front, and the
    rest is one long run of numbers.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal):  # type: ignore[no-untyped-def]
        q, k, v = (_ranks_first(array) for array in (q, k, v))
        p = _sum_of_products(q.unsqueeze(2), k.unsqueeze(1)).mul_(1 / math.sqrt(len(q)))
        if causal:
            later = torch.ones(p.shape[:2], dtype=torch.bool, device=p.device).triu(1)
            p.masked_fill_(later[..., None, None, None], -math.inf)
        p.sub_(p.amax(1, keepdim=True)).exp_()
        p.div_(p.sum(1, keepdim=True))
        ctx.save_for_backward(q, k, v, p)
        return _heads_first(_sum_of_products(p.transpose(0, 1).unsqueeze(1), _by_token(v)))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        q, k, v, p = ctx.saved_tensors
        grad = _ranks_first(grad)
        ds = _sum_of_products(grad.unsqueeze(2), v.unsqueeze(1))
        ds.sub_((ds * p).sum(1, keepdim=True)).mul_(p).mul_(1 / math.sqrt(len(q)))
        grad_q = _sum_of_products(ds.transpose(0, 1).unsqueeze(1), _by_token(k))
        grad_k = _sum_of_products(ds.unsqueeze(1), _by_token(q))
        grad_v = _sum_of_products(p.unsqueeze(1), _by_token(grad))
        return _heads_first(grad_q), _heads_first(grad_k), _heads_first(grad_v), None


def _ranks_first(array: Tensor) -> Tensor:
    """(member, head, rank, token, sample) → (rank, token, member, head, sample)"""
    return array.permute(2, 3, 0, 1, 4).contiguous()


def _heads_first(array: Tensor) -> Tensor:
    """(rank, token, member, head, sample) → (member, head, rank, token, sample)"""
    return array.permute(2, 3, 0, 1, 4)


def _by_token(array: Tensor) -> Tensor:
    """(rank, token, …) → (token, rank, 1, …)"""
    return array.transpose(0, 1).unsqueeze(2)


def _sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """(a * b).sum(0) with broadcasting, without the array of all products."""
    pairs = zip(a.unbind(), b.unbind(), strict=True)
    first, second = next(pairs)
    total = first * second
    for first, second in pairs:
        total.addcmul_(first, second)
    return total


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
