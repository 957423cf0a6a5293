"""The error of an answer that is linear in the score, on two orthonormal points.

sgn⟨x₁ − x₂, y⟩ is the answer's only unknown. Degree 1 of its harmonics is linear in the score, and costs heads nothing
but that their ranks add up to dim: `constructions.linear_heads` attains it with softmax heads of any rank.
"""

from rankscope.theory.heads.lower_bound import energy_from


def linear_error(dim: int) -> float:
    """½ Σ_{l ≥ 3} E_l = ½ (1 − d (E|t|)²) for a coordinate t of the sphere; ½ − 1/π as d → ∞.

    >>> round(linear_error(64), 5)
    0.17919
    """
    return 0.5 * energy_from(dim, 3)
