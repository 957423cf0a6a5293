"""How often drawn rank-1 hardmax heads agree with each other and with the target, as matrices."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.heads.rank_one import target_advantage


def head_agreement(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Float[Tensor, "head head"]:
    """P[heads i and j pick the same of two points], unit rank-1 hardmax heads.

    C_ij = 1/2 + (2/π²) asin⟨q_i,q_j⟩ asin⟨k_i,k_j⟩   [amsel2024, random features]
    """
    return _angles(q).mul_(_angles(k)).mul_(2 / math.pi**2).add_(0.5)


def _angles(vectors: Float[Tensor, "head dim"]) -> Float[Tensor, "head head"]:
    """asin⟨v_i, v_j⟩.

    asin has an infinite slope at 1: a diagonal that is 1 only up to rounding would come out wrong in
    the eighth digit, so lengths within rounding of 1 count as 1.
    """
    gram = vectors @ vectors.T
    lengths = (vectors * vectors).sum(dim=1)
    torch.diagonal(gram)[:] = torch.where((lengths - 1).abs() < 1e-13, torch.ones_like(lengths), lengths)
    return gram.clamp_(-1, 1).asin_()


def target_agreement(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Float[Tensor, " head"]:
    """P[head picks the nearer point], unit vectors: b = (1 + c(θ))/2 with cos θ = ⟨q, k⟩."""
    cosine = (q * k).sum(dim=1).clamp(-1, 1)
    advantage = target_advantage(q.shape[1], cosine.cpu().numpy().astype(np.float64))
    return torch.from_numpy((1 + advantage) / 2).to(q)
