"""The talk's Theorem 2 and its alternative bound: shapes with named constants.

The talk says that universal constants exist, not which. Every function here takes them as arguments
and returns a shape; only `explicit_regime` is a bound with nothing left open.
"""

import math
from dataclasses import dataclass

from rankscope.theory.heads.counting import harmonic_dim, unclipped_touched_dim
from rankscope.theory.heads.expansions import sign_energy_limit
from rankscope.theory.heads.inputs import Values
from rankscope.theory.heads.lower_bound import energy_from
from rankscope.theory.heads.tails import TermRatio, tail_over_first

ALTERNATIVE_ERROR = 1 / 40
ALTERNATIVE_BOUND = (
    "Unless heads · max‖V_h‖ exceeds base^(dim−rank), the error on a combination of biased nearest-neighbour "
    "functions is above 1/40. Neither base nor the target's biases are given, so no number of heads follows."
)


@dataclass(frozen=True)
class Regime:
    """One regime of Theorem 2: log₂ of the heads it excludes, the errors it speaks of, whether it applies."""

    log2_heads: float
    least_error: float
    greatest_error: float
    applies: bool


def high_accuracy_exponent(dim: int, rank: int) -> float:
    """The exponent d − (r+1) log₂(2d/r): positive only for r below about d/2, and −2 at r = d/2.

    >>> high_accuracy_exponent(64, 8)
    28.0
    """
    return dim - (rank + 1) * math.log2(2 * dim / rank)


def high_accuracy_regime(
    dim: int, rank: int, error: float, error_constant: float, head_constant: float
) -> Regime:
    """Regime 1: r ≤ d−3, error ≤ c/(d+1), and H ≤ C · 2^{d − (r+1) log₂(2d/r)} is excluded."""
    greatest = error_constant / (dim + 1)
    log2_heads = math.log2(head_constant) + high_accuracy_exponent(dim, rank)
    applies = rank <= dim - 3 and error <= greatest and log2_heads >= 0
    return Regime(log2_heads, 0.0, greatest, applies)


def high_dimensional_regime(
    dim: int, rank: int, error: float, least_error_constant: float, exponent_constant: float
) -> Regime:
    """Regime 2: d ≥ 5, error ≥ c'/(d − 2e² r), and H ≤ ½ (d / (2e (r + C'/ε)))^{C'/ε} is excluded."""
    exponent = exponent_constant / error
    log2_heads = exponent * math.log2(dim / (2 * math.e * (rank + exponent))) - 1
    room = dim - 2 * math.e**2 * rank
    least = least_error_constant / room if room > 0 else math.inf
    return Regime(log2_heads, least, 0.5, dim >= 5 and error >= least and log2_heads >= 0)


def alternative_bound_heads(dim: int, rank: int, base: float, value_norm: float) -> float:
    """base^(d−r) / max‖V_h‖: heads below which the error exceeds 1/40, were `base` known."""
    return base ** (dim - rank) / value_norm


@dataclass(frozen=True)
class ExplicitRegime:
    """Any number of heads up to `heads` has at least this error."""

    heads: int
    floor: float


def explicit_regime(dim: int, rank: int, degree: int, values: Values) -> ExplicitRegime:
    """For odd L: H ≤ N(d, L)/(2 m(L)) implies error ≥ ¼ Σ_{l≥L} E_l. No constant left open.

    Every degree from L on keeps at least half of its energy, since m/N never rises.
    """
    heads = harmonic_dim(dim, degree) // (2 * unclipped_touched_dim(rank, degree, values))
    return ExplicitRegime(heads, 0.25 * energy_from(dim, degree))


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
    low, high = -1, 1
    while 0.5 * limit_energy_from(high + 2) > error:
        low, high = high, 2 * high + 1
    while high - low > 2:
        middle = (low + high) // 2
        middle += 1 - middle % 2
        if 0.5 * limit_energy_from(middle + 2) > error:
            low = middle
        else:
            high = middle
    return high
