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

from rankscope.theory.heads.counting import least_odd
from rankscope.theory.heads.sphere import mean_over_elevation


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
    return least_odd(lambda heads: failure_rate(dim, heads) <= failure)
