"""The bound in ball arithmetic: intervals that enclose the truth, and head counts that are proved.

Sums run over balls; what lies beyond the last term is enclosed by a telescoping certificate, an
inequality between polynomials with rational coefficients that is checked exactly. Needs python-flint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from rankscope.core import RankscopeError
from rankscope.papers.amsel2024.theory import lower_bound
from rankscope.papers.amsel2024.theory.inputs import Values
from rankscope.papers.amsel2024.theory.tails import (
    TermRatio,
    asymptotic_coefficients,
    energy_ratio,
    touched_energy_ratio,
)

MAX_BITS = 4096
CERTIFICATE_ORDER = 10


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


def _first_energy(flint: Any, dim: int) -> Any:
    """E_1 = d (Γ(d/2) / (√π Γ((d+1)/2)))² as a ball."""
    half = flint.arb(dim) / 2
    eigenvalue = half.gamma() / (flint.arb.pi().sqrt() * (half + flint.arb(1) / 2).gamma())
    return dim * eigenvalue**2


def _energy_until(flint: Any, dim: int, degree: int) -> tuple[Any, Any]:
    """(Σ_{l<degree} E_l over odd l, E_degree)."""
    ratio = energy_ratio(dim)
    energy, total = _first_energy(flint, dim), flint.arb(0)
    for below in range(1, degree, 2):
        total += energy
        energy *= _quotient(flint, ratio, below)
    return total, energy


def _is_signed_beyond(flint: Any, polynomial: Any, degree: int, sign: int) -> bool:
    """Whether sign · polynomial(l) ≥ 0 for all l ≥ degree: no coefficient of its shift has the other sign."""
    shifted = polynomial(flint.fmpq_poly([degree, 1]))
    return all(sign * shifted[k] >= 0 for k in range(shifted.degree() + 1))


def _certified_tail(flint: Any, ratio: TermRatio, degree: int) -> tuple[Any, Any] | None:
    """Bounds on Σ_{j≥0} f(degree+2j)/f(degree), or None where the certificate does not hold.

    If c(l) − R(l) c(l+2) ≥ 1 for all l ≥ L then f(l) c(l) − f(l+2) c(l+2) ≥ f(l), and the sum from L
    telescopes to at most f(L) c(L); with ≤, to at least that. c is the asymptotic series with its next
    term doubled or left out; multiplied by the denominators, the condition is a polynomial inequality.
    """
    order = CERTIFICATE_ORDER
    coefficients = [flint.fmpq(c.numerator, c.denominator) for c in asymptotic_coefficients(ratio, order)]
    product = flint.fmpq_poly([1])
    denominator = flint.fmpq_poly([1])
    for over, under in zip(ratio.numerator, ratio.denominator, strict=True):
        product *= flint.fmpq_poly(list(over))
        denominator *= flint.fmpq_poly(list(under))
    power = flint.fmpq_poly([0] * (order - 1) + [1])  # l^(order−1)
    step = flint.fmpq_poly([2, 1])
    bounds = []
    for last in (0, 2):
        # c(l) = series(l) / l^(order−1), coefficients c_0 l + c_1 + … + last · c_order l^(1−order)
        series = flint.fmpq_poly([last * coefficients[-1], *reversed(coefficients[:-1])])
        excess = series * power(step) * denominator - product * series(step) * power
        excess -= power * power(step) * denominator
        value = series(flint.fmpq(degree)) / power(flint.fmpq(degree))
        if _is_signed_beyond(flint, excess, degree, 1):
            bounds.append((value, 1))
        elif _is_signed_beyond(flint, excess, degree, -1):
            bounds.append((value, -1))
    by_sign = {sign: value for value, sign in bounds}
    return (by_sign[-1], by_sign[1]) if len(by_sign) == 2 else None


def _relative_touched_energy(
    flint: Any, dim: int, rank: int, degree: int, *, values: Values, bits: int
) -> Any:
    """Σ_{l≥degree} E_l m(l)/N over its first term, as a ball."""
    ratio = touched_energy_ratio(dim, rank, values)
    total, term, start = flint.arb(0), flint.arb(1), degree
    if degree == 1:  # M_V at rank 1 follows its ratio only from degree 3 on
        share = lower_bound.touched_share(dim, rank, 3, values) / lower_bound.touched_share(
            dim, rank, 1, values
        )
        total += 1
        term = flint.fmpq(share.numerator, share.denominator) * _quotient(flint, energy_ratio(dim), 1)
        term, start = flint.arb(term), 3
    first_try = 2 * dim + 16
    while True:
        if start >= first_try:
            tail = _certified_tail(flint, ratio, start)
            if tail is not None:
                low, high = (term * bound for bound in tail)
                if start >= ratio.asymptotic_from or (high - low).abs_upper() < flint.arb(2) ** -bits * total:
                    return total + low.union(high)
            first_try = start + max(start // 2, 2)
        total += term
        term *= _quotient(flint, ratio, start)
        start += 2


def _ball(flint: Any, number: Fraction) -> Any:
    return flint.arb(flint.fmpq(number.numerator, number.denominator))


def _endpoint(flint: Any, exact: Any) -> Fraction:
    mantissa, exponent = (int(part) for part in exact.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def _floor_ball(flint: Any, dim: int, rank: int, heads: int, *, values: Values, bits: int) -> Any:
    degree = lower_bound.first_unsaturated(dim, rank, heads, values)
    below, energy = _energy_until(flint, dim, degree)
    reached = _ball(flint, heads * lower_bound.touched_share(dim, rank, degree, values)) * energy
    return (
        1 - below - reached * _relative_touched_energy(flint, dim, rank, degree, values=values, bits=bits)
    ) / 2


def error_floor(dim: int, rank: int, heads: int, values: Values, bits: int = 128) -> Enclosure:
    """LB(d, r, H) enclosed; `bits` of working precision, the width follows.

    >>> enclosure = error_floor(64, 8, 8, "any")
    >>> round(float(enclosure.low), 6), enclosure.width < Fraction(1, 10**25)
    (0.176776, True)
    """
    if lower_bound.saturates_every_degree(dim, rank, heads, values):
        return Enclosure(Fraction(0), Fraction(0))
    with _precision(bits) as flint:
        ball = _floor_ball(flint, dim, rank, heads, values=values, bits=bits)
        return Enclosure(_endpoint(flint, ball.lower()), _endpoint(flint, ball.upper()))


def _solve(dim: int, rank: int, error: Fraction, values: Values, bits: int) -> Enclosure:
    """The real H at which LB meets `error` on the segment float64 points to."""
    degree = lower_bound.deciding_degree(dim, rank, float(error), values)
    with _precision(bits) as flint:
        below, energy = _energy_until(flint, dim, degree)
        share = _ball(flint, lower_bound.touched_share(dim, rank, degree, values))
        reach = share * energy * _relative_touched_energy(flint, dim, rank, degree, values=values, bits=bits)
        heads = (1 - below - 2 * _ball(flint, error)) / reach
        return Enclosure(_endpoint(flint, heads.lower()), _endpoint(flint, heads.upper()))


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
    low = high = guess
    if rank < dim - 1 and guess > 1:
        crossing = _solve(dim, rank, error, values, bits)
        low, high = max(1, floor(crossing.low)), max(1, ceil(crossing.high))
    step = 1
    while low > 1 and error_floor(dim, rank, low - 1, values, bits).low <= error:
        low, step = max(1, low - step), 2 * step
    step = 1
    while error_floor(dim, rank, high, values, bits).high > error:
        high, step = high + step, 2 * step
    while low < high and error_floor(dim, rank, low, values, bits).low > error:
        low += 1
    while low < high and error_floor(dim, rank, high - 1, values, bits).high <= error:
        high -= 1
    return HeadRange(low, high)
