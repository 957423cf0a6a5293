"""How far a mean over seeds can be trusted."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of a mean by Student's t.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    spread = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * spread
    mean = float(np.mean(values))
    return mean - half, mean + half
