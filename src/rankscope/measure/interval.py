"""How far a mean over seeds can be trusted, and from how many seeds on.

**A worse value must never help.** Student's interval is not so: replace the 5 of (1, 1, 5) by 1, and an interval that reached
below 0 is a point. From six values on limits are therefore taken from Walsh averages, the means of pairs: no value can rise
without every one of them rising or staying   [Hodges and Lehmann 1963; the signed-rank test of Wilcoxon 1945]. Fewer values
leave no choice. A rule that looks at no scale and never lets a better value hurt must, if it ever decides for "above", decide
so whenever all n values are above; by chance they are once in 2^n, and 1/32 is more than 0.025. There Student's t is used.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtri, stdtrit

CONFIDENCE = 0.95
LEVEL = (1 - CONFIDENCE) / 2
"""How often either end of an interval may lie on the wrong side of the mean."""

FEW = 5
"""Up to this many values 2^−n is more than LEVEL."""

HUGE = 1e300
"""Stands for what is infinite: pairs of it can be averaged."""


def mean_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The interval of a mean by Student's t, at 95% unless another level of its ends is given.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    spread = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, 1 - level)) * spread
    mean = float(np.mean(values))
    return mean - half, mean + half


def limits(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Below and above which the centre of the values lies at most a share `level` of the time.

    >>> limits([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    (1.0, 60.0)
    """
    if len(values) <= FEW:
        return mean_interval(values, level)
    place = _place(len(values), level)
    if place == 0:
        return -math.inf, math.inf
    clipped = np.clip(values, -HUGE, HUGE)
    averages = np.sort(np.add.outer(clipped, clipped)[np.triu_indices(len(clipped))] / 2)
    return float(averages[place - 1]), float(averages[-place])


@cache
def _place(count: int, level: float) -> int:
    """Which Walsh average from either end is a limit; 0 where none is sure enough.

    Under symmetry the number of averages above the centre is a sum of a random subset of 1 … count.
    """
    shares = np.ones(1)
    for rank in range(1, count + 1):
        shares = np.convolve(shares, np.bincount([0, rank])) / 2
    return int(np.searchsorted(np.cumsum(shares), level, side="right"))


def values_to_decide(values: Sequence[float], distance: float, level: float = LEVEL) -> float:
    """About how many values like these have an interval that reaches no farther than `distance` from their mean."""
    if len(values) < 2 or distance <= 0:
        return math.inf
    reach = -float(ndtri(level)) * float(np.std(values, ddof=1)) / distance
    pairs_for_means = math.pi / 3  # what limits by pairs lose to the mean
    fewest = max(FEW + 1, math.ceil(-math.log2(level)))
    return float(max(len(values) + 1, fewest, math.ceil(reach**2 * pairs_for_means)))
