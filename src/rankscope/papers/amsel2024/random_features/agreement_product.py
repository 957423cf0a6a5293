"""C v for the agreement matrix C of unit rank-1 heads, tile by tile: C is never held.

C_ij = 1/2 + (2/π²) asin⟨q_i,q_j⟩ asin⟨k_i,k_j⟩, evaluated in the heads' own precision, summed in float64.
In float32 a cosine carries an error near 1e-7 and its angle 1e-7/sin θ; float64 is the reference.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.kernels import angles as angles_kernel
from rankscope.kernels import usable

TILE = {"cpu": 512, "cuda": 8_192}
"""Heads a side: what stays in a core's cache, and what keeps a GPU busy."""


def agreement_product(
    q: Float[Tensor, "head dim"],
    k: Float[Tensor, "head dim"],
    vector: Float[Tensor, " head"],
    tile: int | None = None,
) -> Float[Tensor, " head"]:
    """C v in float64, in memory heads · dim + tile²; one fused kernel for float32 on a GPU."""
    vector = vector.to(torch.float64)
    if usable(q.device) and q.dtype == torch.float32 and tile is None:
        angles = angles_kernel.angle_product(q, k, vector)
    else:
        angles = angle_product(q, k, vector, tile or TILE[q.device.type])
    return angles * (2 / math.pi**2) + 0.5 * vector.sum()


def angle_product(
    q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"], vector: Float[Tensor, " head"], tile: int
) -> Float[Tensor, " head"]:
    """Σ_j asin⟨q_i,q_j⟩ asin⟨k_i,k_j⟩ v_j; a tile off the diagonal also serves its mirror image."""
    product, given = torch.zeros_like(vector), vector.to(q.dtype)
    for i in range(0, len(q), tile):
        rows = slice(i, i + tile)
        for j in range(i, len(q), tile):
            columns = slice(j, j + tile)
            angles = _angles(q[rows], q[columns], i == j).mul_(_angles(k[rows], k[columns], i == j))
            product[rows] += angles @ given[columns]
            if j > i:
                product[columns] += given[rows] @ angles
    return product


def _angles(
    rows: Float[Tensor, "row dim"], columns: Float[Tensor, "column dim"], diagonal: bool
) -> Float[Tensor, "row column"]:
    """asin⟨row, column⟩; asin is steep at 1, so a unit vector meets itself at exactly π/2."""
    gram = rows @ columns.T
    if diagonal:
        gram.fill_diagonal_(1)
    return gram.clamp_(-1, 1).asin_()
