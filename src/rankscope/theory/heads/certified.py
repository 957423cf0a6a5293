"""The bound in ball arithmetic: intervals that enclose the truth, and head counts that are proved.

Sums run over balls; what lies beyond the last term is enclosed by a telescoping certificate, an
inequality between polynomials with rational coefficients that is checked exactly. Needs python-flint.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from rankscope.core import RankscopeError
from rankscope.theory.heads import lower_bound
from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.inputs import Values
from rankscope.theory.heads.tails import (
    TermRatio,
    asymptotic_coefficients,
    energy_ratio,
    touched_energy_ratio,
)

MAX_BITS = 4096
MAX_ORDER = 48  # terms of the series a certificate is made of


class UndecidedError(RankscopeError):
    """The balls stayed too wide to name one integer; the message gives the proved range."""


@dataclass(frozen=True)
class Enclosure:
    """low ≤ truth ≤ high, with exact endpoints."""

    low: Fraction
    high: Fraction

    @property
    def width(self) -> Fraction:
        """How far the two ends are apart."""
        return self.high - self.low


@dataclass(frozen=True)
class HeadRange:
    """low ≤ least number of heads ≤ high, proved; decided when both are one number."""

    low: int
    high: int

    @property
    def decided(self) -> bool:
        """Whether the least number of heads is known exactly."""
        return self.low == self.high


def _flint() -> Any:
    try:
        import flint
    except ImportError:
        raise RankscopeError(
            "Certified bounds need python-flint. Install it with pip install 'rankscope[certified]', "
            "or leave certified off for float64."
        ) from None
    return flint


@contextmanager
def _precision(bits: int) -> Iterator[Any]:
    flint = _flint()
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield flint
    finally:
        flint.ctx.prec = before


def _quotient(flint: Any, ratio: TermRatio, degree: int) -> Any:
    """The term ratio at one degree, exact."""
    above = below = 1
    for over, under in zip(ratio.numerator, ratio.denominator, strict=True):
        above *= sum(c * degree**k for k, c in enumerate(over))
        below *= sum(c * degree**k for k, c in enumerate(under))
    return flint.fmpq(above, below)


def _energy(flint: Any, dim: int, degree: int) -> Any:
    """E_l = N (Γ(l/2) Γ(d/2) / (π Γ((l+d)/2)))² as a ball."""
    gamma = [(flint.arb(twice) / 2).gamma() for twice in (degree, dim, degree + dim)]
    return harmonic_dim(dim, degree) * (gamma[0] * gamma[1] / (flint.arb.pi() * gamma[2])) ** 2


def _energy_from(flint: Any, dim: int, degree: int, bits: int) -> Any:
    """Σ_{l≥degree} E_l over odd l: 1 less the sum below, or a certified tail where that sum is long."""
    ratio = energy_ratio(dim)
    if degree >= ratio.asymptotic_from:
        return _energy(flint, dim, degree) * _relative_tail(flint, ratio, degree, bits)
    energy, left = _energy(flint, dim, 1), flint.arb(1)
    for below in range(1, degree, 2):
        left -= energy
        energy *= _quotient(flint, ratio, below)
    return left


def _is_signed_beyond(flint: Any, polynomial: Any, degree: int, sign: int) -> bool:
    """Whether sign · polynomial(l) ≥ 0 for all l ≥ degree: no coefficient of its shift has the other sign."""
    shifted = polynomial(flint.fmpq_poly([degree, 1]))
    return all(sign * shifted[k] >= 0 for k in range(shifted.degree() + 1))


def _certified_tail(flint: Any, ratio: TermRatio, degree: int, order: int) -> tuple[Any, Any] | None:
    """Bounds on Σ_{j≥0} f(degree+2j)/f(degree), or None where the certificate does not hold.

    If c(l) − R(l) c(l+2) ≥ 1 for all l ≥ L then f(l) c(l) − f(l+2) c(l+2) ≥ f(l), and the sum from L
    telescopes to at most f(L) c(L); with ≤, to at least that. c is the asymptotic series with its last
    term doubled, left out or kept; times the denominators, the condition is a polynomial inequality.
    """
    coefficients = [flint.fmpq(c.numerator, c.denominator) for c in asymptotic_coefficients(ratio, order)]
    while coefficients[-1] == 0:
        coefficients.pop()
    order = len(coefficients) - 1
    product = flint.fmpq_poly([1])
    denominator = flint.fmpq_poly([1])
    for over, under in zip(ratio.numerator, ratio.denominator, strict=True):
        product *= flint.fmpq_poly(list(over))
        denominator *= flint.fmpq_poly(list(under))
    power = flint.fmpq_poly([0] * order + [1])  # l^order
    step = flint.fmpq_poly([2, 1])
    below: Any = None
    above: Any = None
    for last in (0, 2, 1):
        # c(l) = series(l) / l^order, terms c_0 l + c_1 + … + last · c_order l^(1−order)
        series = flint.fmpq_poly([0, last * coefficients[-1], *reversed(coefficients[:-1])])
        excess = series * power(step) * denominator - product * series(step) * power
        excess -= power * power(step) * denominator
        value = series(flint.fmpq(degree)) / power(flint.fmpq(degree))
        # 1 comes last: it is the tightest of its side, and of both where the series ends (excess 0)
        if _is_signed_beyond(flint, excess, degree, 1):
            above = value
        if _is_signed_beyond(flint, excess, degree, -1):
            below = value
    return None if below is None or above is None else (below, above)


def _relative_tail(flint: Any, ratio: TermRatio, degree: int, bits: int) -> Any:
    """Σ_{j≥0} f(degree+2j)/f(degree) as a ball: terms are added until a certificate is tight enough."""
    total, term, start = flint.arb(0), flint.arb(1), degree
    next_try = ratio.asymptotic_from // 32 + 16
    while True:
        if start >= next_try:
            tail = _certified_tail(flint, ratio, start, order=min(8 + bits // 6, MAX_ORDER))
            if tail is not None:
                low, high = (term * bound for bound in tail)
                tight = (high - low).abs_upper() < flint.arb(2) ** -bits * (total + low)
                if tight or start >= ratio.asymptotic_from:
                    return total + low.union(high)
            next_try = start + max(start // 2, 2)
        total += term
        term *= _quotient(flint, ratio, start)
        start += 2


def _relative_touched_energy(
    flint: Any, dim: int, rank: int, degree: int, *, values: Values, bits: int
) -> Any:
    """Σ_{l≥degree} E_l m(l)/N over its first term, as a ball."""
    ratio = touched_energy_ratio(dim, rank, values)
    if degree > 1:
        return _relative_tail(flint, ratio, degree, bits)
    # M_V at rank 1 follows its ratio only from degree 3 on
    step = lower_bound.touched_share(dim, rank, 3, values) / lower_bound.touched_share(dim, rank, 1, values)
    third = _ball(flint, step) * _quotient(flint, energy_ratio(dim), 1)
    return 1 + third * _relative_tail(flint, ratio, 3, bits)


def _ball(flint: Any, number: Fraction) -> Any:
    return flint.arb(flint.fmpq(number.numerator, number.denominator))


def _enclosure(ball: Any) -> Enclosure:
    ends = (ball.lower().man_exp(), ball.upper().man_exp())
    return Enclosure(*(Fraction(int(mantissa)) * Fraction(2) ** int(exponent) for mantissa, exponent in ends))


def _reached(flint: Any, dim: int, rank: int, heads: int, degree: int, values: Values, bits: int) -> Any:
    """H Σ_{l≥degree} E_l m(l)/N, the energy that the heads have in reach."""
    share = _ball(flint, heads * lower_bound.touched_share(dim, rank, degree, values))
    relative = _relative_touched_energy(flint, dim, rank, degree, values=values, bits=bits)
    return share * _energy(flint, dim, degree) * relative


def error_floor(dim: int, rank: int, heads: int, values: Values, bits: int = 128) -> Enclosure:
    """LB(d, r, H) enclosed; `bits` of working precision, the width follows.

    >>> enclosure = error_floor(64, 8, 8, "any")
    >>> round(float(enclosure.low), 6), enclosure.width < Fraction(1, 10**25)
    (0.176807, True)
    """
    if lower_bound.saturates_every_degree(dim, rank, heads, values):
        return Enclosure(Fraction(0), Fraction(0))
    degree = lower_bound.first_unsaturated(dim, rank, heads, values)
    with _precision(bits) as flint:
        reached = _reached(flint, dim, rank, heads, degree, values, bits)
        return _enclosure((_energy_from(flint, dim, degree, bits) - reached) / 2)


def _solve(dim: int, rank: int, error: Fraction, values: Values, bits: int) -> Enclosure:
    """The real H at which LB meets `error` on the segment float64 points to."""
    degree = lower_bound.deciding_degree(dim, rank, float(error), values)
    with _precision(bits) as flint:
        missing = _energy_from(flint, dim, degree, bits) - 2 * _ball(flint, error)
        return _enclosure(missing / _reached(flint, dim, rank, 1, degree, values, bits))


def min_heads(dim: int, rank: int, error: Fraction, values: Values, max_bits: int = MAX_BITS) -> HeadRange:
    """The least H with LB(d, r, H) ≤ error: proved by LB(H−1) > error ≥ LB(H), or a proved range.

    >>> min_heads(64, 1, Fraction(1, 20), "identity")
    HeadRange(low=1622224468340211918, high=1622224468340211918)
    """
    _flint()
    if lower_bound.saturates_every_degree(dim, rank, 1, values):
        return HeadRange(1, 1)
    guess = lower_bound.min_heads(dim, rank, error, values)
    bits = min(max_bits, 128 + 2 * guess.bit_length())
    while True:
        found = _proved_range(dim, rank, error, values, guess=guess, bits=bits)
        if found.decided or bits >= max_bits:
            return found
        bits = min(max_bits, 2 * bits)


def _proved_range(
    dim: int, rank: int, error: Fraction, values: Values, *, guess: int, bits: int
) -> HeadRange:
    def excluded(heads: int) -> bool:
        return error_floor(dim, rank, heads, values, bits).low > error

    def allowed(heads: int) -> bool:
        return error_floor(dim, rank, heads, values, bits).high <= error

    low = high = guess
    if rank < dim - 1 and guess > 1:
        crossing = _solve(dim, rank, error, values, bits)
        low, high = max(1, floor(crossing.low)), max(1, ceil(crossing.high))
    step = 1
    while low > 1 and not excluded(low - 1):
        low, step = max(1, low - step), 2 * step
    step = 1
    while not allowed(high):
        high, step = high + step, 2 * step
    low = _first(low, high, lambda heads: not excluded(heads))
    return HeadRange(low, _first(low, high, allowed))


def _first(low: int, high: int, reached: Callable[[int], bool]) -> int:
    """The least number from `low` on that is reached, by bisection; `high` is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return low
