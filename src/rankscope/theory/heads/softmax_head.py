"""One full-rank softmax head, X softmax(β Xᵀ y), against the inverse temperature β.

The hardmax head is exact; a softmax head pays (const)/β for near ties.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rankscope.theory.heads.sphere import mean_over_elevation


def error_two_orthonormal(dim: int, beta: float) -> float:
    """½ E(1 − tanh(β|t|/√2))², two orthonormal points; 1/2 at β = 0.

    >>> round(error_two_orthonormal(8, 10.0), 6)
    0.055084
    """

    def squared_miss(phi: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * expit(-math.sqrt(2) * beta * np.sin(phi)) ** 2

    return mean_over_elevation(dim, squared_miss, width=1 / (1 + beta))
