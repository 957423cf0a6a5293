"""The least error of H given rank-1 hardmax heads with the best weights.

error(a) = 1 − 2 a·b + aᵀ C a, least at C a = b. Dense Cholesky up to 16,384 heads; beyond, conjugate
gradients that never hold C, on the device the heads are on.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError, RankscopeError
from rankscope.papers.amsel2024.theory.agreement import angle_matrix, head_agreement, target_agreement

DENSE_HEADS = 16_384


@dataclass(frozen=True)
class Fit:
    """Weights, the error they reach, and how far the linear system was solved (relative residual)."""

    weights: Float[Tensor, " head"]
    error: float
    residual: float


def error_of_weights(
    weights: Float[Tensor, " head"],
    agreement: Float[Tensor, "head head"],
    with_target: Float[Tensor, " head"],
) -> float:
    """1 − 2 a·b + aᵀ C a: the error of these weights on the vector problem, no factor left out."""
    return float(1 - 2 * weights @ with_target + weights @ (agreement @ weights))


def solve_dense(agreement: Float[Tensor, "head head"], with_target: Float[Tensor, " head"]) -> Fit:
    """C a = b by Cholesky in float64."""
    heads = len(with_target)
    if heads > DENSE_HEADS:
        raise InputError(
            f"{heads} heads: a dense matrix would need {heads**2 * 16 / 2**30:.0f} GiB with its factor. "
            f"Lower heads to ≤ {DENSE_HEADS}, or use solve_matrix_free."
        )
    factor = torch.linalg.cholesky(agreement)
    weights = torch.cholesky_solve(with_target[:, None], factor)[:, 0]
    residual = (with_target - agreement @ weights).norm() / with_target.norm()
    return Fit(weights, error_of_weights(weights, agreement, with_target), float(residual))


def agreement_product(
    q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"], vector: Float[Tensor, " head"], block: int
) -> Float[Tensor, " head"]:
    """C v, `block` rows of C at a time."""
    product = torch.empty_like(vector)
    for start in range(0, len(q), block):
        rows = slice(start, start + block)
        angles = angle_matrix(q[rows], q, start).mul_(angle_matrix(k[rows], k, start))
        product[rows] = angles @ vector
    return product * (2 / math.pi**2) + 0.5 * vector.sum()


def solve_matrix_free(
    q: Float[Tensor, "head dim"],
    k: Float[Tensor, "head dim"],
    tolerance: float = 1e-8,
    max_iterations: int = 1_000,
    block: int = 2_048,
) -> Fit:
    """C a = b for unit heads by conjugate gradients, in memory proportional to heads · block."""
    with_target = target_agreement(q, k)
    weights = torch.zeros_like(with_target)
    residual = with_target.clone()
    direction = residual.clone()
    squared = float(residual @ residual)
    goal = tolerance**2 * squared
    for _ in range(max_iterations):
        if squared <= goal:
            # aᵀCa = a·(b − r), so the error needs no further product
            error = float(1 - weights @ with_target - weights @ residual)
            return Fit(weights, error, float(residual.norm() / with_target.norm()))
        image = agreement_product(q, k, direction, block)
        step = squared / float(direction @ image)
        weights += step * direction
        residual -= step * image
        before, squared = squared, float(residual @ residual)
        direction = residual + squared / before * direction
    raise RankscopeError(
        f"Conjugate gradients left a relative residual of {math.sqrt(squared / goal) * tolerance:.1e} after "
        f"{max_iterations} iterations. Raise max_iterations or tolerance."
    )


def best_error(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Fit:
    """The best weights for heads of any length: the heads are brought to length 1 first."""
    q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    if len(q) > DENSE_HEADS:
        return solve_matrix_free(q, k)
    return solve_dense(head_agreement(q, k), target_agreement(q, k))
