"""The talk's Theorem 2 in its two regimes, and the exponent that the heads grow with at a fixed error.

The talk says that universal constants exist, not which: what depends on one takes it as an argument.
"""

import math

from rankscope.theory.heads.counting import least_odd
from rankscope.theory.heads.expansions import sign_energy_limit
from rankscope.theory.heads.tails import TermRatio, tail_over_first


def high_accuracy_exponent(dim: int, rank: int) -> float:
    """The exponent d − (r+1) log₂(2d/r): positive only for r below about d/2, and −2 at r = d/2.

    >>> high_accuracy_exponent(64, 8)
    28.0
    """
    return dim - (rank + 1) * math.log2(2 * dim / rank)


def high_dimensional_exponent(
    dim: int, rank: int, error: float, least_error_constant: float, power_constant: float
) -> float:
    """log₂ of the heads of regime 2, ½ (d / (2e (r + C′/ε)))^{C′/ε}; NaN where ε < c′/(d − 2e² r) or d < 5.

    >>> round(high_dimensional_exponent(4096, 8, 0.1, least_error_constant=1.0, power_constant=0.1), 2)
    5.39
    """
    power, room = power_constant / error, dim - 2 * math.e**2 * rank
    if dim < 5 or room <= 0 or error < least_error_constant / room:
        return math.nan
    return power * math.log2(dim / (2 * math.e * (rank + power))) - 1


def limit_energy_from(degree: int) -> float:
    """Σ_{l ≥ degree} E_l over odd l as d → ∞, with E_{l+2}/E_l = l²/((l+1)(l+2))."""
    if degree <= 1:
        return 1.0
    # terms fall like l^{−3/2}: the same tail formula holds with half-integer decay
    ratio = TermRatio(((0, 1), (0, 1)), ((1, 1), (2, 1)), asymptotic_from=64)
    return sign_energy_limit(degree) * tail_over_first(ratio, degree)


def head_growth_exponent(error: float) -> int:
    """L(ε): for fixed error the least heads grow like (d/r)^L as d → ∞; L ≈ 0.0645/ε², not 1/ε.

    The least odd L such that capturing every degree up to L brings the floor to `error`.

    >>> [head_growth_exponent(error) for error in (0.2, 0.1, 0.05)]
    [1, 7, 25]
    """
    return least_odd(lambda degree: 0.5 * limit_energy_from(degree + 2) <= error)
