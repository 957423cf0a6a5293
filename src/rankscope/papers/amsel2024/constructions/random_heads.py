"""Random rank-1 hardmax heads with optimal weights, on two orthonormal points   [amsel2024, random features].

Head h answers X hm(Xᵀ k_h q_hᵀ y) with weight a_h. Its choices are signs: every second moment
is a closed form.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.attention.layer import RankAttention
from rankscope.attention.weighing import Weighing
from rankscope.core import InputError
from rankscope.papers.amsel2024.constructions.weighted_heads import weighted_heads
from rankscope.papers.amsel2024.random_features.agreement import target_agreement
from rankscope.papers.amsel2024.random_features.agreement_product import agreement_product
from rankscope.papers.amsel2024.random_features.head_draws import independent_heads
from rankscope.papers.amsel2024.random_features.solve import best_error


@dataclass(frozen=True)
class RandomHeads:
    """Unit directions of the heads, and a weight for each."""

    q: Float[Tensor, "head dim"]
    k: Float[Tensor, "head dim"]
    weights: Float[Tensor, " head"]

    def __post_init__(self) -> None:
        for name, directions in (("q", self.q), ("k", self.k)):
            lengths = directions.norm(dim=-1)
            if not torch.allclose(lengths, torch.ones_like(lengths), atol=1e-6):
                raise InputError(
                    f"{name} is not of unit length, and asin of its products is no angle: divide it by its norm."
                )

    @property
    def error(self) -> float:
        """E‖f − Σ_h a_h x_h‖² = 1 − 2 a·b + aᵀ C a, exactly, for any number of heads: C is not held."""
        q, k, weights = (given.to(torch.float64) for given in (self.q, self.k, self.weights))
        both = agreement_product(q, k, weights) - 2 * target_agreement(q, k)
        return float(1 + weights @ both)

    def layer(self) -> RankAttention:
        """The heads as one attention layer: `layer(queries, points, points)[0]` is the answer."""
        return weighted_heads(self.q, self.k, self.weights, Weighing.HARDMAX)


def random_heads(dim: int, heads: int, generator: torch.Generator) -> RandomHeads:
    """q_h and k_h independent and uniform on the sphere, with the weights that are best for this draw."""
    q, k = independent_heads(dim, heads, generator)
    return RandomHeads(q, k, best_error(q, k).weights)
