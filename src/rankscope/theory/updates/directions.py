"""What gradient flow predicts for the first attention update. Sees no model and no data."""

import math
from typing import NamedTuple

from rankscope.core import InputError


class DirectionGains(NamedTuple):
    """The two singular values of the expected first update of W_KᵀW_Q, up to a common factor; all others are zero."""

    together: float
    apart: float


def direction_gains(patterns: int, relevant: float, confusion: float) -> DirectionGains:
    """Singular values of E[∂(yF)/∂(W_KᵀW_Q)] at uniform attention, where W_O W_V reads μ_1 − μ_2.

    With α = `relevant`, κ = `confusion`, ρ = (1−α−κ)/(M−2) and g = α − κ (the output at uniform attention), label +1 pulls
    the score of a key by its frequency times (its worth − g), for each query as often as it occurs:

        k = (α(1−g), −κ(1+g), −ρg, …, −ρg)   keys       q = (α, κ, ρ, …, ρ)   queries

    Label −1 swaps μ_1 and μ_2. So E = ½(k qᵀ + k' q'ᵀ) = k_s q_sᵀ + k_a q_aᵀ with the symmetric and antisymmetric halves,
    which are orthogonal: rank two, with singular values |k_s||q_s| (towards μ_1+μ_2) and |k_a||q_a| (along μ_1−μ_2).

    >>> few, many = direction_gains(20, 0.1, 0.05), direction_gains(20, 0.4, 0.1)
    >>> round(few.together / few.apart, 2), round(many.together / many.apart, 2)
    (1.95, 0.68)
    """
    if patterns < 3 or not 0 <= confusion < relevant or relevant + confusion > 1:
        raise InputError(
            f"patterns={patterns}, relevant={relevant}, confusion={confusion}: "
            "needs patterns ≥ 3 and 0 ≤ confusion < relevant with a sum ≤ 1."
        )
    gap = relevant - confusion
    others = math.sqrt(patterns - 2) * (1 - relevant - confusion) / (patterns - 2)
    winner, loser = relevant * (1 - gap), -confusion * (1 + gap)
    together = math.hypot((winner + loser) / math.sqrt(2), others * gap) * math.hypot(
        (relevant + confusion) / math.sqrt(2), others
    )
    apart = (winner - loser) * (relevant - confusion) / 2
    return DirectionGains(together, apart)
