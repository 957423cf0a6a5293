"""What gradient flow predicts for the attention update, and the theorem's own rates. Sees no model and no data."""

import math
from typing import NamedTuple

from rankscope.core import InputError

STEPS_AGAINST_RATE = -3 / 5
STEPS_AGAINST_FRACTION = -1.0
"""T = Θ(η^{−3/5} α_*^{−1}), theorem 1."""


class DirectionGains(NamedTuple):
    """The two singular values of the first attention update, up to a common factor."""

    together: float
    apart: float


def direction_gains(patterns: int, relevant: float, confusion: float) -> DirectionGains:
    """Singular values of E[∂(yF)/∂(W_KᵀW_Q)] at uniform attention, where W_O W_V reads μ_1 − μ_2.

    With G[key, query] the expected pull on a pair of patterns, α = `relevant`, κ = `confusion`, g = α − κ, a key μ_1
    is worth +1 for label +1 and −1 for label −1, so its score is pulled by p_key (±1 − g) per query, averaged over
    both labels and weighted by how often the query occurs:

        c = ½[α·α(1−g) − κ·κ(1+g)]                query μ_1, key μ_1
        e = ½[−α·κ(1+g) + κ·α(1−g)] = −α·κ·g      query μ_1, key μ_2
        w = ½[α(1−g) − κ(1+g)]·(1−α−κ)/(M−2)      an irrelevant query, key μ_1 or μ_2

    On (μ_1+μ_2)/√2 the keys see the queries with weight √((c+e)² + 2(M−2)w²), on (μ_1−μ_2)/√2 with |c−e|.
    Irrelevant keys are pulled down together; that adds to the first direction only and is left out.

    >>> few, many = direction_gains(20, 0.1, 0.0), direction_gains(20, 0.5, 0.0)
    >>> few.together / few.apart > 2.5 > 1.1 > many.together / many.apart
    True
    """
    if patterns < 3 or not 0 <= confusion < relevant or relevant + confusion > 1:
        raise InputError(
            f"patterns={patterns}, relevant={relevant}, confusion={confusion}: "
            "needs patterns ≥ 3 and 0 ≤ confusion < relevant with a sum ≤ 1."
        )
    gap = relevant - confusion
    same = 0.5 * (relevant**2 * (1 - gap) - confusion**2 * (1 + gap))
    cross = -relevant * confusion * gap
    pull = 0.5 * (relevant * (1 - gap) - confusion * (1 + gap))
    irrelevant = pull * (1 - relevant - confusion) / (patterns - 2)
    together = math.hypot(same + cross, math.sqrt(2 * (patterns - 2)) * irrelevant)
    return DirectionGains(together, abs(same - cross))
