"""The least error of H given rank-1 hardmax heads with the best weights.

error(a) = 1 − 2 a·b + aᵀ C a, least at C a = b. Dense Cholesky up to 16,384 heads; beyond, conjugate
gradients that never hold C, on the device the heads are on.

Weights a that leave the residual r = b − C a have error(a) = optimum + rᵀC⁻¹r. So error(a) is attained, and
never below the optimum, wherever the iteration stops. The other side needs the least eigenvalue of C, of which
the iteration knows an estimate from above: the gap is an estimate, not a bound.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError, RankscopeError
from rankscope.papers.amsel2024.random_features.agreement import head_agreement, target_agreement
from rankscope.papers.amsel2024.random_features.agreement_product import agreement_product
from rankscope.papers.amsel2024.random_features.low_degrees import LowDegrees

DENSE_HEADS = 16_384


@dataclass(frozen=True)
class Fit:
    """Weights, the error they reach, and how far the linear system was solved.

    `residual` is ‖b − C a‖/‖b‖. `gap` estimates how far `error` is above the optimum: rᵀP⁻¹r over the least
    Ritz value of P⁻¹C, P the preconditioner. A direct solution leaves rounding errors only.
    """

    weights: Float[Tensor, " head"]
    error: float
    residual: float
    gap: float = 0.0
    iterations: int = 0


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


def solve_matrix_free(
    q: Float[Tensor, "head dim"],
    k: Float[Tensor, "head dim"],
    *,
    tolerance: float = 1e-7,
    precision: torch.dtype = torch.float32,
    max_iterations: int = 1_000,
    tile: int | None = None,
) -> Fit:
    """C a = b for unit heads by preconditioned conjugate gradients, where the heads lie; C is never held.

    Stops once `gap` ≤ tolerance. Products run in `precision`; the residual, the error and the gap that are
    returned come from one more product in float64, and iterations go on where that one disagrees.
    """
    q, k = q.to(torch.float64), k.to(torch.float64)
    rough = q.to(precision), k.to(precision)
    with_target, low_degrees = target_agreement(q, k), LowDegrees(q, k)
    weights, residual = torch.zeros_like(with_target), with_target
    iterations, least_ritz = 0, math.inf
    while True:
        steps: list[float] = []
        turns: list[float] = []
        left, direction = residual.clone(), low_degrees.solve(residual)
        squared = float(left @ direction)
        # half the tolerance: rounding of the products may take the other half
        while not steps or squared > tolerance / 2 * least_ritz:
            if iterations == max_iterations:
                relative = float(left.norm() / with_target.norm())
                raise RankscopeError(
                    f"Conjugate gradients left a relative residual of {relative:.1e} after {max_iterations} "
                    "iterations. Raise max_iterations or tolerance."
                )
            image = agreement_product(*rough, direction, tile)
            steps.append(squared / float(direction @ image))
            weights += steps[-1] * direction
            left -= steps[-1] * image
            solved = low_degrees.solve(left)
            before, squared = squared, float(left @ solved)
            turns.append(squared / before)
            direction = solved + turns[-1] * direction
            least_ritz = min(least_ritz, _least_ritz_value(steps, turns))
            iterations += 1
        residual = with_target - agreement_product(q, k, weights, tile)
        gap = float(residual @ low_degrees.solve(residual)) / least_ritz
        if gap <= tolerance:
            # aᵀCa = a·(b − r), so the error needs no further product
            error = float(1 - weights @ with_target - weights @ residual)
            return Fit(weights, error, float(residual.norm() / with_target.norm()), gap, iterations)


def _least_ritz_value(steps: list[float], turns: list[float]) -> float:
    """The least eigenvalue of P⁻¹C on the space searched so far, from the coefficients of the iteration."""
    from scipy.linalg import eigvalsh_tridiagonal

    step, turn = np.array(steps), np.array(turns)
    diagonal = 1 / step
    diagonal[1:] += turn[:-1] / step[:-1]
    beside = np.sqrt(turn[:-1]) / step[:-1]
    return float(eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0])


def best_error(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Fit:
    """The best weights for heads of any length: the heads are brought to length 1 first."""
    q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    if len(q) > DENSE_HEADS:
        return solve_matrix_free(q, k)
    return solve_dense(head_agreement(q, k), target_agreement(q, k))
