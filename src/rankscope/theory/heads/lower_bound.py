"""The floor LB(d, r, H) under the error of H heads of rank r, and the heads it does not exclude.

    LB = ½ Σ_{l odd} E_l max(0, 1 − H m(l)/N(d, l)),   m = M (V_h ∝ I) or M_V (V_h arbitrary)

m/N never rises with l (proved for both), so the degrees below some L are saturated, max(0, ·) is 0
there, and LB = ½ (Σ_{l≥L} E_l − H Σ_{l≥L} E_l m(l)/N). Both sums are tails with rational term ratio.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil

from rankscope.theory.heads.counting import harmonic_dim, least_odd, unclipped_touched_dim
from rankscope.theory.heads.expansions import sign_energy
from rankscope.theory.heads.inputs import Values
from rankscope.theory.heads.tails import energy_ratio, tail_over_first, touched_energy_ratio


def saturates_every_degree(dim: int, rank: int, heads: int, values: Values) -> bool:
    """Whether H m(l) ≥ N(d, l) in every degree, so that LB = 0 and nothing is excluded.

    At rank d−1, N/2 ≤ M < N and M_V = N; below it m/N → 0.
    """
    return rank >= dim or (rank == dim - 1 and (values == "any" or heads >= 2))


@lru_cache(maxsize=65536)
def touched_share(dim: int, rank: int, degree: int, values: Values) -> Fraction:
    """m(l)/N(d, l) for rank < dim, before the cap at 1."""
    return Fraction(unclipped_touched_dim(rank, degree, values), harmonic_dim(dim, degree))


def first_unsaturated(dim: int, rank: int, heads: int, values: Values) -> int:
    """The least odd l with H m(l) < N(d, l), by bisection on exact integers.

    >>> first_unsaturated(8, 1, 8, "identity")
    3
    """
    return least_odd(lambda degree: heads * touched_share(dim, rank, degree, values) < 1)


@lru_cache(maxsize=65536)
def energy_from(dim: int, degree: int) -> float:
    """Σ_{l ≥ degree} E_l over odd l, without the cancellation of 1 − Σ_{l < degree} E_l."""
    if degree <= 1:
        return 1.0
    return sign_energy(dim, degree) * tail_over_first(energy_ratio(dim), degree)


@lru_cache(maxsize=65536)
def relative_touched_energy(dim: int, rank: int, degree: int, values: Values) -> float:
    """Σ_{l ≥ degree} E_l m(l)/N, the energy one head has in reach, in units of its first term."""
    ratio = touched_energy_ratio(dim, rank, values)
    if degree > 1:
        return tail_over_first(ratio, degree)
    step = touched_share(dim, rank, 3, values) / touched_share(dim, rank, 1, values)
    return 1 + sign_energy(dim, 3) / sign_energy(dim, 1) * float(step) * tail_over_first(ratio, 3)


def error_floor(dim: int, rank: int, heads: int, values: Values) -> float:
    """LB(d, r, H): no choice of weights, attention function or training gives a smaller error.

    >>> round(error_floor(64, 8, 8, "any"), 4)
    0.1768
    """
    if saturates_every_degree(dim, rank, heads, values):
        return 0.0
    degree = first_unsaturated(dim, rank, heads, values)
    reached = float(heads * touched_share(dim, rank, degree, values)) * sign_energy(dim, degree)
    return 0.5 * (energy_from(dim, degree) - reached * relative_touched_energy(dim, rank, degree, values))


@lru_cache(maxsize=65536)
def _floor_when_saturated(dim: int, rank: int, degree: int, values: Values) -> float:
    """LB at the real number of heads N/m that just saturates `degree`."""
    step = touched_share(dim, rank, degree + 2, values) / touched_share(dim, rank, degree, values)
    first = sign_energy(dim, degree + 2) * float(step)
    return 0.5 * (
        energy_from(dim, degree + 2) - first * relative_touched_energy(dim, rank, degree + 2, values)
    )


def deciding_degree(dim: int, rank: int, error: float, values: Values) -> int:
    """The least odd L such that saturating every degree up to L brings LB to `error` or below."""
    return least_odd(lambda degree: _floor_when_saturated(dim, rank, degree, values) <= error)


def min_heads(dim: int, rank: int, error: Fraction, values: Values) -> int:
    """The least H ≥ 1 with LB(d, r, H) ≤ error: every smaller number of heads is excluded.

    An integer of any size. LB is piecewise linear in H, so it is solved for, not searched. The
    arithmetic is float64: beyond 10¹² or so the last digits are noise; `certified` has them all.

    >>> min_heads(64, 8, Fraction(1, 10), "any")
    6016
    """
    if saturates_every_degree(dim, rank, 1, values) or error_floor(dim, rank, 1, values) <= error:
        return 1
    if rank == dim - 1:
        return 2
    degree = deciding_degree(dim, rank, float(error), values)
    first = sign_energy(dim, degree) * relative_touched_energy(dim, rank, degree, values)
    saturation = (energy_from(dim, degree) - 2 * float(error)) / first
    return max(1, ceil(Fraction(saturation) / touched_share(dim, rank, degree, values)))
