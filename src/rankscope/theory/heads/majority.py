"""Majority vote of rank-1 heads with q = k: the talk's two-layer construction for two points.

Given t = ⟨w, y⟩ with w ∝ x₁ − x₂, the heads are right independently, each with probability
1/2 + asin|t|/π. They are not independent without t: a binomial with the average probability would
fall exponentially and be wrong.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from rankscope.theory.heads.sphere import density_constant, mean_over_elevation


def failure_rate(dim: int, heads: int) -> float:
    """P[the majority of H heads is wrong]; ties are broken by a fair coin.

    H = 2m+1: 2 c_d ∫_0^{π/2} cos^{d−2} φ I_{1/2−φ/π}(m+1, m+1) dφ. An even H does no better than
    H − 1: the last vote matters only in a tie. The error of the vector problem is twice this.

    >>> round(failure_rate(8, 11), 6)
    0.27608
    """
    votes = (heads - 1) // 2 + 1

    def wrong(phi: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(betainc(votes, votes, 0.5 - phi / math.pi))

    return mean_over_elevation(dim, wrong, width=math.pi / (2 * math.sqrt(heads)))


def heads_for_failure(dim: int, failure: Fraction) -> int:
    """The least (odd) number of heads whose majority is wrong with probability ≤ `failure`.

    >>> heads_for_failure(8, Fraction(1, 10))
    153
    """
    low, high = -1, 0  # heads = 2·half + 1; the failure rate falls with every two heads
    while failure_rate(dim, 2 * high + 1) > failure:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if failure_rate(dim, 2 * middle + 1) > failure:
            low = middle
        else:
            high = middle
    return 2 * high + 1


def failure_rate_limit(dim: int, heads: int) -> float:
    """c_d √(π/(2H)), about ½ √(d/H): the failure rate for H ≫ d."""
    return density_constant(dim) * math.sqrt(math.pi / (2 * heads))


def heads_for_failure_limit(dim: int, failure: float) -> float:
    """(π/2) c_d²/δ², about d/(4δ²): heads for a small failure rate δ."""
    return math.pi / 2 * density_constant(dim) ** 2 / failure**2


def heads_beyond_margin(margin: float, failure: float) -> float:
    """π² ln(1/δ) / (2 asin² γ): heads that suffice whenever |t| ≥ γ, by Hoeffding's inequality."""
    return math.pi**2 * math.log(1 / failure) / (2 * math.asin(margin) ** 2)
