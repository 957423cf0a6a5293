"""A bare sum of softmax heads for a stack of members: no skip, no bias, no MLP, value matrices of full rank.

Σ_h V_h X softmax(Xᵀ M_h y/√rank),   M_h = W_Kᵀ W_Q of rank ≤ rank   [amsel2024, the model of the lower bound]
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.linalg.weights import Weights
from rankscope.theory.heads.counting import heads_of_budget


class HeadSum(Config):
    """heads = budget·dim/rank heads that attend from one query to the points."""

    dim: int = Field(ge=2)
    rank: int = Field(ge=1)
    budget: int = Field(ge=1)

    @model_validator(mode="after")
    def _blocks_are_whole(self) -> "HeadSum":
        heads_of_budget(self.dim, self.rank, self.budget)
        return self

    @property
    def heads(self) -> int:
        """All heads."""
        return heads_of_budget(self.dim, self.rank, self.budget)


def init(model: HeadSum, seeds: Sequence[int], *, device: str = "cpu") -> Weights:
    """W_Q and W_K Gaussian of variance 1/dim; every V_h = I/heads, so that the start is the mean of the points."""
    shape = (model.heads, model.rank, model.dim)
    weights = {
        name: torch.stack([torch.randn(shape, generator=stream(seed, "heads", name)) for seed in seeds])
        / math.sqrt(model.dim)
        for name in ("w_q", "w_k")
    }
    identity = torch.eye(model.dim).expand(len(seeds), model.heads, -1, -1) / model.heads
    return {name: tensor.to(device) for name, tensor in {**weights, "values": identity.clone()}.items()}


def forward(
    weights: Weights,
    points: Float[Tensor, "member sample token dim"],
    queries: Float[Tensor, "member sample 1 dim"],
) -> Float[Tensor, "member sample 1 dim"]:
    """The answer for each sample's one query."""
    w_q, w_k = weights["w_q"], weights["w_k"]
    q = torch.einsum("mhrd,msd->mhrs", w_q, queries[:, :, 0]) / math.sqrt(w_q.shape[2])
    k = torch.einsum("mhrd,msnd->mhrns", w_k, points)
    chosen = (k * q.unsqueeze(3)).sum(2).softmax(2)  # (member, head, token, sample)
    mixed = torch.einsum("mhns,msnd->mhds", chosen, points)
    return torch.einsum("mhed,mhds->mse", weights["values"], mixed).unsqueeze(2)
