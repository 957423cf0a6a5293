"""One full-rank softmax head, X softmax(β Xᵀ y), against the inverse temperature β.

The hardmax head is exact; a softmax head pays (const)/β for near ties.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, ndtr

from rankscope.theory.heads.sphere import density_constant, mean_over_elevation

Points = Literal["orthonormal", "independent"]


def error_two_orthonormal(dim: int, beta: float) -> float:
    """½ E(1 − tanh(β|t|/√2))², two orthonormal points; 1/2 at β = 0.

    >>> round(error_two_orthonormal(8, 10.0), 6)
    0.055084
    """

    def squared_miss(phi: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * expit(-math.sqrt(2) * beta * np.sin(phi)) ** 2

    return mean_over_elevation(dim, squared_miss, width=1 / (1 + beta))


def error_two_independent(dim: int, beta: float) -> float:
    """E[(2−2ρ) σ(−β √(2−2ρ) |t|)²], two independent points: ρ = ⟨x₁,x₂⟩ and t independent.

    With ρ = ±sin ψ the points are |x₁−x₂| = √(2 ∓ 2 sin ψ) apart.
    """

    def squared_miss(psi: NDArray[np.float64]) -> NDArray[np.float64]:
        gaps = [np.sqrt(np.maximum(2 - 2 * sign * np.sin(psi), 0)) for sign in (1, -1)]
        return np.array(
            [sum(_miss_at_gap(dim, beta, float(gap)) for gap in pair) / 2 for pair in zip(*gaps, strict=True)]
        )

    return mean_over_elevation(dim, squared_miss, width=math.pi / 2)


def _miss_at_gap(dim: int, beta: float, gap: float) -> float:
    def squared_miss(phi: NDArray[np.float64]) -> NDArray[np.float64]:
        return gap**2 * expit(-beta * gap * np.sin(phi)) ** 2

    return mean_over_elevation(dim, squared_miss, width=1 / (1 + beta * gap))


def error_limit(dim: int, points: int, beta: float, law: Points) -> float:
    """The error for large β: a near tie of the two best scores is all that is left.

    orthonormal: (2 ln 2 − 1)/β · √2 Γ(d/2)/Γ((d−1)/2) · N(N−1) ∫ φ² Φ^{N−2};
    independent: (ln 2 − ½)/β · N(N−1) ∫ u_d² F_d^{N−2} · 2(1−t²) dt
    """
    from scipy.integrate import quad

    pairs = points * (points - 1)
    c_d = density_constant(dim)
    if law == "orthonormal":
        ties, _ = quad(lambda z: math.exp(-z * z) / (2 * math.pi) * ndtr(z) ** (points - 2), -np.inf, np.inf)
        return (2 * math.log(2) - 1) / beta * math.sqrt(2 * math.pi) * c_d * pairs * ties

    def tie(t: float) -> float:
        below = betainc((dim - 1) / 2, (dim - 1) / 2, (1 + t) / 2)
        return float(c_d**2 * (1 - t * t) ** (dim - 2) * below ** (points - 2) * 2)

    ties, _ = quad(tie, -1, 1)
    return (math.log(2) - 0.5) / beta * pairs * ties
