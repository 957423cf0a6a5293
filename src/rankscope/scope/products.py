"""An update that is known by its factors, as a LoRA is: its spectrum and its best approximation, never multiplied out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.linalg.factored import Factored


def truncated(
    product: Factored, rank: int
) -> tuple[Float[Tensor, "rows rank"], Float[Tensor, "rank columns"]]:
    """The nearest product of that rank [Eckart and Young 1936], singular values shared out evenly between both sides.

    left = Q_l R_l and rightᵀ = Q_r R_r: the decomposition is that of the small R_l R_rᵀ. In float64.
    """
    q_left, r_left = torch.linalg.qr(product.left.double())
    q_right, r_right = torch.linalg.qr(product.right.double().mT)
    u, values, v = torch.linalg.svd(r_left @ r_right.mT)
    size = values[:rank].sqrt()
    left, right = q_left @ (u[:, :rank] * size), size[:, None] * (v[:rank] @ q_right.mT)
    return left.float(), right.float()


def weighted_sum(products: Sequence[Factored], weights: Sequence[float]) -> Factored:
    """Σ wᵢ leftᵢ rightᵢ, whose factors stand beside each other."""
    left = torch.cat([weight * product.left for product, weight in zip(products, weights, strict=True)], -1)
    return Factored(left, torch.cat([product.right for product in products], -2))


def inner(a: Factored, b: Factored) -> float:
    """⟨A, B⟩ of two products of one shape, from their factors."""
    left = a.left.double().mT @ b.left.double()
    right = a.right.double() @ b.right.double().mT
    return float((left * right).sum())
