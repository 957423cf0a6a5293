"""From scores to attention weights: softmax or hardmax over the tokens a query may see."""

from enum import Enum
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Weighing(Enum):
    """How a head turns scores into weights: a share for every token, or all weight on the best."""

    SOFTMAX = "softmax"
    HARDMAX = "hardmax"


def weigh(
    scores: Float[Tensor, "*batch query key"],
    mask: Bool[Tensor, "*#batch #query #key"] | Float[Tensor, "*#batch #query #key"] | None,
    weighing: Weighing,
) -> Float[Tensor, "*batch query key"]:
    """Weights over the keys. A query that may see no key gets weight 0 on all of them, never NaN."""
    shares = partial(torch.softmax, dim=-1) if weighing is Weighing.SOFTMAX else hardmax
    if mask is None or scores.shape[-1] == 0:
        return shares(scores)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    blind = scores.amax(-1, keepdim=True) == -torch.inf
    return shares(scores.masked_fill(blind, 0.0)).masked_fill(blind, 0.0)


def hardmax(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """All weight on the largest score, shared equally where several are largest   [amsel2024, hm]

    Sharing keeps the layer equivariant under permutations of the tokens. NaN among the scores makes the
    whole row NaN. No gradient flows to the scores.

    >>> hardmax(torch.tensor([[1.0, 3.0, 2.0], [2.0, 0.0, 2.0]])).tolist()
    [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]
    """
    if scores.shape[-1] == 0:
        return scores
    best = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return best / best.sum(-1, keepdim=True)
