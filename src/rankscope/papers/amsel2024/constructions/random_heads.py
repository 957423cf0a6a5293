"""Random rank-1 hardmax heads with optimal weights, on two orthonormal points   [amsel2024, random features].

Head h answers X hm(Xᵀ k_h q_hᵀ y) with weight a_h. Its choices are signs: every second moment
is a closed form.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.sphere import uniform_sphere
from rankscope.models.attention import RankAttention
from rankscope.models.selection import Selection
from rankscope.papers.amsel2024.constructions.exact import head_agreement, target_agreement


@dataclass(frozen=True)
class RandomHeads:
    """Unit directions of the heads, and a weight for each."""

    q: Float[Tensor, "head dim"]
    k: Float[Tensor, "head dim"]
    weights: Float[Tensor, " head"]

    @property
    def error(self) -> float:
        """E‖f − Σ_h a_h x_h‖² = 1 − 2 a·b + aᵀ C a, exactly."""
        a, b = self.weights, target_agreement(self.q, self.k)
        return float(1 - 2 * a @ b + a @ head_agreement(self.q, self.k) @ a)

    def layer(self) -> RankAttention:
        """The heads as one attention layer: `layer(queries, points, points)[0]` is the answer."""
        heads, dim = self.q.shape
        layer = RankAttention(
            dim,
            heads,
            rank=1,
            value_rank=dim,
            bias=False,
            batch_first=True,
            selection=Selection.HARDMAX,
            dtype=self.q.dtype,
        )
        identity = torch.eye(dim, dtype=self.q.dtype)
        weights = {
            "w_q.weight": self.q,
            "w_k.weight": self.k,
            "w_v.weight": identity.repeat(heads, 1),
            "w_o.weight": (self.weights[:, None, None] * identity).permute(1, 0, 2).reshape(dim, -1),
        }
        layer.load_state_dict(weights)
        return layer


def random_heads(dim: int, heads: int, generator: torch.Generator) -> RandomHeads:
    """q_h and k_h independent and uniform on the sphere, with the weights that are best for this draw."""
    q = uniform_sphere(heads, dim=dim, generator=generator)
    k = uniform_sphere(heads, dim=dim, generator=generator)
    return RandomHeads(q, k, optimal_weights(q, k))


def optimal_weights(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Float[Tensor, " head"]:
    """The minimiser a = C⁻¹ b of 1 − 2 a·b + aᵀ C a, for heads no two of which always agree."""
    weights: Tensor = torch.linalg.solve(head_agreement(q, k), target_agreement(q, k))
    return weights
