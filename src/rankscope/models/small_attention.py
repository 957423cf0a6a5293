"""Attention over a few tokens by many small heads, which no stock kernel is made for.

Stock kernels take a (token × rank) problem per sample and head. With 8 tokens and rank 1 that is hundreds of
thousands of problems of 64 products each, and their overhead is all the time. On a CPU the sample axis comes last
here, so that every product is one long vector operation, 5 to 7 times as fast.
"""

import math

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def sample_last_attention(
    q: Float[Tensor, "member head rank token sample"],
    k: Float[Tensor, "member head rank token sample"],
    v: Float[Tensor, "member head rank token sample"],
) -> Float[Tensor, "member head rank token sample"]:
    """v softmax(kᵀq/√rank) in every head of every sample: products on a CPU, the fused kernel elsewhere."""
    return by_products(q, k, v) if q.device.type == "cpu" else by_kernel(q, k, v)


def by_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Multiply and sum over whole arrays; needs heads·rank·token²·sample numbers of memory."""
    scores = (q.unsqueeze(4) * k.unsqueeze(3)).sum(2) / math.sqrt(q.shape[2])
    weights = scores.softmax(3)
    return (weights.unsqueeze(2) * v.unsqueeze(3)).sum(4)


def by_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same by `scaled_dot_product_attention`, a problem a sample and head."""
    members, heads, rank, tokens, samples = q.shape
    q, k, v = (part.permute(0, 4, 1, 3, 2).flatten(0, 1) for part in (q, k, v))
    context: Tensor = functional.scaled_dot_product_attention(q, k, v)
    return context.view(members, samples, heads, tokens, rank).permute(0, 2, 4, 3, 1)
