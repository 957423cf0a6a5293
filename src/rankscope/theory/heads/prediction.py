"""What random rank-1 heads reach, without drawing any: a deterministic prediction and two limits."""

import math

import numpy as np

from rankscope.theory.heads import lower_bound
from rankscope.theory.heads.agreement import single_head_success
from rankscope.theory.heads.expansions import (
    sign_eigenvalue,
    sign_eigenvalues,
    sign_energies,
    sign_energy,
)
from rankscope.theory.heads.tails import TermRatio, energy_ratio, tail_over_first

TERMS = 400  # odd degrees kept; s_lm beyond them is far below κ, and their energy is counted whole


def independent_heads_prediction(dim: int, heads: int) -> float:
    """Error of H heads with q, k independent uniform and the best weights: a prediction, not a bound.

    Solve 1/(1+κ) + Σ_{l,m odd} N_l N_m s/(s+κ) = H, s = λ_l² λ_m², for κ > 0; then
    error = ½ [κ/(1+κ) + Σ_l E_l κ/(κ + λ_l⁴)].

    >>> round(independent_heads_prediction(8, 4096), 4)
    0.1661
    """
    from scipy.optimize import brentq

    energy = sign_energies(dim, TERMS)
    squared = sign_eigenvalues(dim, TERMS) ** 2
    s, weight = np.outer(squared, squared), np.outer(energy, energy)
    beyond = 1 - energy.sum() ** 2

    def excess(log_kappa: float) -> float:
        kappa = math.exp(log_kappa)
        return float(1 / (1 + kappa) + np.sum(weight / (s + kappa)) + beyond / kappa - heads)

    kappa = math.exp(brentq(excess, -300.0, 10.0, xtol=1e-12))
    captured = np.sum(energy * kappa / (kappa + squared**2)) + (1 - energy.sum())
    return float(0.5 * (kappa / (1 + kappa) + captured))


def rank_one_infimum(dim: int, heads: int) -> float:
    """The infimum over all H generalised rank-1 heads with V_h ∝ I: at rank 1 the bound is attained."""
    return lower_bound.error_floor(dim, 1, heads, "identity")


def plateau(dim: int) -> float:
    """½ (1 − E_1): where random heads rest once degree 1 is captured; degree 3 needs about N(d,3)² heads."""
    return 0.5 * (1 - sign_energy(dim, 1))


def pair_moment(dim: int) -> float:
    """(4/π²) E[asin² t] = Σ_l E_l λ_l² =: s, the agreement beyond chance of two heads with q = k."""
    energy = energy_ratio(dim)
    ratio = TermRatio(
        (*energy.numerator, (0, 1), (0, 1)), (*energy.denominator, (dim, 1), (dim, 1)), energy.asymptotic_from
    )
    return sign_energy(dim, 1) * sign_eigenvalue(dim, 1) ** 2 * tail_over_first(ratio, 1)


def same_query_key_limit(dim: int) -> float:
    """Error of infinitely many heads with q = k: 1 − (1+c)²/(2(1+s)), c = c(0).

    They fail because their weights must also sum to 1; see `opposite_pairs_limit`.
    """
    advantage = 2 * single_head_success(dim) - 1
    return 1 - (1 + advantage) ** 2 / (2 * (1 + pair_moment(dim)))


def opposite_pairs_limit(dim: int) -> float:
    """Error of infinitely many heads (q, q) together with (q, −q): ½ (1 − c²/s)."""
    advantage = 2 * single_head_success(dim) - 1
    return 0.5 * (1 - advantage**2 / pair_moment(dim))
