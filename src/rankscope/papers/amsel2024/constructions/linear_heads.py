"""Softmax heads of any rank whose scores are so small that their sum is linear in them, on two orthonormal points.

With z = x₁ − x₂, a head of scores Xᵀ M y and values v·I answers v (x₁ + x₂)/2 + v z/2 · tanh(zᵀ M y/2). Head h sees a block
of `rank` coordinates by its projector P_h, M_h = s_h P_h. Then Σ_h v_h = 1 leaves the mean of the points as it is, and
s_h = 2κ/(budget v_h) makes the sum z/2 · κ zᵀy up to O(1/v²), whatever the v_h are. With t a coordinate of the sphere,
κ = d E|t|/√2 is the best such factor. Large values of either sign, v_h = ±gain up to what makes their sum 1, leave the
scores as small as one likes.
"""

import math

import torch

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.papers.amsel2024.constructions.weighted_heads import weighted_heads
from rankscope.theory.heads.counting import heads_of_budget
from rankscope.theory.heads.expansions import sign_energy


def linear_heads(
    dim: int, rank: int, budget: int = 1, *, gain: float = 100.0, dtype: torch.dtype = torch.float64
) -> RankAttention:
    """budget·dim/rank heads with the error `theory.heads.rank_one.linear_error`, up to O(1/gain²).

    Call it as attention over the points: `layer(queries, points, points)[0]` is the answer.
    """
    heads = heads_of_budget(dim, rank, budget)
    if heads < 2:
        raise InputError(
            f"rank={rank} in dim={dim} at budget={budget} is one head: values of either sign need two."
        )
    if not gain >= 1:
        raise InputError(
            f"gain={gain}: values of either sign need gain ≥ 1; the larger, the nearer to a linear answer."
        )
    signs = torch.ones(heads, dtype=dtype)
    signs[1::2] = -1
    values = gain * signs + (1 - gain * signs.sum()) / heads
    scores = math.sqrt(2 * dim * sign_energy(dim, 1)) / (budget * values)  # E₁ = d (E|t|)², so 2κ = √(2 d E₁)
    blocks = torch.eye(dim, dtype=dtype).repeat(budget, 1)
    return weighted_heads(scores.repeat_interleave(rank)[:, None] * blocks, blocks, values, Weighing.SOFTMAX)
