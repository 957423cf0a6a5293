"""Directions inside a head: a basis of its queries and keys (or values and outputs) in which truncation is optimal."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE = 1e-8
"""Added to moments, relative to their mean eigenvalue: directions that the data never showed stay invertible."""


def balanced_directions(
    left: Float[Tensor, "*batch rank rank"], right: Float[Tensor, "*batch rank rank"]
) -> tuple[Float[Tensor, "*batch rank rank"], Float[Tensor, "*batch rank rank"]]:
    """X and Y with XY = I, such that L X_r Y_r R is the nearest matrix of rank r to L R for every r.

    `left` is LᵀCL and `right` is R S Rᵀ, and near means ‖C^½ (·) S^½‖. With left = AᵀA, right = BᵀB and
    A Bᵀ = U Σ Vᵀ: X = BᵀVΣ^-½ and Y = Σ^-½UᵀA, by the theorem of Eckart and Young on A Bᵀ; the first r columns of X and
    rows of Y give rank r. Both moments become Σ in the new basis, as in balanced truncation [Moore 1981].
    """
    a, b = _root(left), _root(right)
    u, values, v = torch.linalg.svd(a @ b.mT)
    size = values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt()
    return (b.mT @ v.mT) * size[..., None, :], size[..., :, None] * (u.mT @ a)


def _root(moment: Tensor) -> Tensor:
    """A symmetric root of a moment in float64, made invertible by the ridge; of a zero moment that of the identity."""
    moment = moment.double()
    mean = moment.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(moment.shape[-1], dtype=moment.dtype, device=moment.device)
    values, vectors = torch.linalg.eigh(moment + torch.where(mean > 0, RIDGE * mean, 1.0) * identity)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.mT
    return root
