"""What rank-1 hardmax heads can do, without drawing any: how often one agrees with the target, what many reach.

Head (q, k) picks the x_i with the larger ⟨x_i, k⟩⟨q, y⟩. Lengths of q and k do not matter to the head,
but they do to the formulas: pass unit vectors.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import hyp2f1

from rankscope.theory.heads import lower_bound
from rankscope.theory.heads.expansions import sign_eigenvalues, sign_energies, sign_energy
from rankscope.theory.heads.sphere import density_constant, gegenbauer_sequence

SERIES_FROM_DIM = 7  # from here on at most some 1,500 degrees stand above 1e-17
QUADRATURE_NODES = 64
TERMS = 400  # odd degrees kept in the prediction; s_lm beyond them is far below κ, and their energy is counted whole


def target_advantage(dim: int, cosine: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """c(θ) = E[sgn⟨x,y⟩ sgn⟨x,k⟩ sgn⟨q,y⟩] at cos θ = ⟨q, k⟩: P[agree] − P[disagree] with the target."""
    if dim in (2, 4):
        return advantage_closed_form(dim, cosine)
    return (advantage_series if dim >= SERIES_FROM_DIM else advantage_quadrature)(dim, cosine)


def advantage_series(dim: int, cosine: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """c(θ) = Σ_{l odd} N λ_l³ P_l(cos θ); the terms decay like l^{−2−d/2}, fast for dim ≥ 7."""
    count = 1024
    terms = sign_energies(dim, count) * sign_eigenvalues(dim, count)
    needed = int(np.count_nonzero(np.abs(terms) > 1e-17 * abs(terms[0])))
    total = np.zeros_like(cosine)
    for degree, polynomial in zip(range(2 * needed), gegenbauer_sequence(dim, cosine), strict=False):
        if degree % 2:
            total += terms[degree // 2] * polynomial
    return total


def advantage_quadrature(dim: int, cosine: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """c(θ) = (4 c_d/(π(d−1))) ∫_θ^{π/2} sin φ ₂F₁(½, ½; (d+1)/2; sin² φ) dφ, odd about π/2.

    φ = π/2 − y² takes the edge off the singularity cos^{d−1} φ · log cos φ at π/2. For small dim:
    scipy's ₂F₁ overflows near 1 at dim 199.
    """
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    upper = np.sqrt(np.arcsin(np.abs(cosine)))[:, None]
    y = upper * (nodes + 1) / 2
    cos = np.cos(y**2)
    integrand = cos * hyp2f1(0.5, 0.5, (dim + 1) / 2, cos**2) * 2 * y
    integral = (integrand * upper / 2) @ weights
    return np.asarray(np.sign(cosine) * 4 * density_constant(dim) / (math.pi * (dim - 1)) * integral)


def advantage_closed_form(dim: int, cosine: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """c(θ) in elementary functions, odd about π/2; d=2: 1/2 − 2θ²/π²;   d=4: 1/2 − (2/π²)(θ² + θ cot θ)."""
    theta = np.arccos(np.abs(cosine))
    if dim == 2:
        return np.asarray(np.sign(cosine) * (0.5 - 2 * theta**2 / math.pi**2))
    cot = np.cos(theta) / np.sin(np.where(theta > 0, theta, 1))
    theta_cot = np.where(theta > 0, theta * cot, 1.0)
    return np.asarray(np.sign(cosine) * (0.5 - 2 / math.pi**2 * (theta**2 + theta_cot)))


def single_head_success(dim: int) -> float:
    """p(d) = (1 + c(0))/2: P[a head with q = k is right]; 1/2 + 0.2540/√d for large d.

    The talk's 1/2 + 1/√d leaves out the factor √(2/π)/π = 0.2540.

    >>> round(single_head_success(2), 12)
    0.75
    """
    return (1 + float(target_advantage(dim, np.ones(1))[0])) / 2


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


def linear_error(dim: int) -> float:
    """½ (1 − E_1): what is left of sgn⟨x₁ − x₂, y⟩ once degree 1, its part that is linear in the score, is captured.

    Random heads rest here until degree 3 comes into reach, at about N(d, 3)² of them. Softmax heads of any rank attain
    it where their ranks add up to dim (`constructions.linear_heads`); ½ − 1/π as d → ∞.

    >>> round(linear_error(64), 5)
    0.17919
    """
    return 0.5 * (1 - sign_energy(dim, 1))
