import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core import RankscopeError
from rankscope.theory.heads import certified, lower_bound
from rankscope.theory.heads.counting import harmonic_dim

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def fifty_digits(dim, rank, heads, values):
    """LB for even dim to 50 digits, by other means: λ_l² m(l) is rational in l, with double poles.

    λ_l = (Γ(d/2)/π) Π_i 2/(l+2i), i < d/2, so Σ λ_l² m(l) = Σ_i A_i Σ 1/(l+2i)² + B_i Σ 1/(l+2i), which are
    Hurwitz zeta and digamma values. The cancellation between the poles is paid for in digits.
    """
    with mpmath.workdps(60 + 4 * dim):
        scale = (mpmath.gamma(mpmath.mpf(dim) / 2) / mpmath.pi) ** 2 * mpmath.mpf(4) ** (dim // 2)

        def monomials(shift):  # C(l+shift+r−1, r−1) as a polynomial in l, highest coefficient first
            coefficients = [mpmath.mpf(1)]
            for k in range(1, rank):
                longer = [*coefficients, mpmath.mpf(0)]
                for place, c in enumerate(coefficients):
                    longer[place + 1] += c * (shift + k)
                coefficients = [c / k for c in longer]
            return coefficients

        touched = monomials(0)
        if values == "any":
            touched = [2 * a + b for a, b in zip(touched, monomials(-2), strict=True)]
        slope = [c * (rank - 1 - place) for place, c in enumerate(touched[:-1])]

        def squared_eigenvalue(degree):
            return scale / mpmath.fprod(mpmath.mpf(degree + 2 * i) ** 2 for i in range(dim // 2))

        def exact_touched(degree):
            first_of_rank_one = values == "any" and rank == 1 and degree == 1
            return 2 if first_of_rank_one else mpmath.polyval(touched, degree)

        start = 1
        while heads * exact_touched(start) >= harmonic_dim(dim, start):
            start += 2
        left = 1 - mpmath.fsum(harmonic_dim(dim, deg) * squared_eigenvalue(deg) for deg in range(1, start, 2))
        reached = squared_eigenvalue(1) * (exact_touched(1) - mpmath.polyval(touched, 1)) if start == 1 else 0
        for i in range(dim // 2):
            others = [mpmath.mpf(2 * (j - i)) for j in range(dim // 2) if j != i]
            base = scale / mpmath.fprod(gap**2 for gap in others)
            value = mpmath.polyval(touched, -2 * i)
            double = base * value
            single = base * (
                (mpmath.polyval(slope, -2 * i) if slope else 0)
                - 2 * value * mpmath.fsum(1 / gap for gap in others)
            )
            at = mpmath.mpf(start + 2 * i) / 2
            reached += double * mpmath.zeta(2, at) / 4 - single * mpmath.digamma(at) / 2
        return Fraction(mpmath.nstr((left - heads * reached) / 2, 50))


@given(
    st.integers(2, 20).map(lambda half: 2 * half),
    st.sampled_from(["identity", "any"]),
    st.integers(1, 60),
    st.data(),
)
@settings(max_examples=30, deadline=None)
def test_the_interval_contains_a_fifty_digit_evaluation(dim, values, heads, data):
    rank = data.draw(st.integers(1, dim - 2))
    enclosure = certified.error_floor(dim, rank, heads, values, bits=128)
    assert enclosure.low <= fifty_digits(dim, rank, heads, values) <= enclosure.high
    assert enclosure.width < Fraction(1, 10**30)


@given(st.integers(2, 200), st.sampled_from(["identity", "any"]), st.integers(1, 10**6), st.data())
@settings(max_examples=25, deadline=None)
def test_float64_agrees_with_the_interval(dim, values, heads, data):
    rank = data.draw(st.integers(1, dim))
    enclosure = certified.error_floor(dim, rank, heads, values)
    assert lower_bound.error_floor(dim, rank, heads, values) == pytest.approx(float(enclosure.low), rel=1e-12)


def test_more_bits_nest():
    wide = certified.error_floor(8, 6, 5, "any", bits=64)
    narrow = certified.error_floor(8, 6, 5, "any", bits=256)
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert narrow.width < wide.width / 10**30


@pytest.mark.parametrize("values", ["identity", "any"])
def test_known_least_heads_to_the_last_digit(values):
    table = REFERENCE["min_heads"][values]
    for key in [key for key in table if "eps=0.05" in key or "r=8" in key]:
        dim, rank, error = re.findall(r"=([\d.]+)", key)
        found = certified.min_heads(int(dim), int(rank), Fraction(error), values)
        assert found == certified.HeadRange(int(table[key]), int(table[key])), key


@given(st.integers(2, 120), st.sampled_from(["identity", "any"]), st.integers(5, 240), st.data())
@settings(max_examples=15, deadline=None)
def test_least_heads_are_proved_on_both_sides(dim, values, thousandths, data):
    rank, error = data.draw(st.integers(1, dim)), Fraction(2 * thousandths, 1000)
    found = certified.min_heads(dim, rank, error, values)
    assert found.decided
    bits = 200 + 3 * found.low.bit_length()
    assert certified.error_floor(dim, rank, found.low, values, bits).high <= error
    if found.low > 1:
        assert certified.error_floor(dim, rank, found.low - 1, values, bits).low > error


def test_too_few_bits_give_a_range_that_holds_the_answer():
    found = certified.min_heads(64, 1, Fraction(1, 20), "identity", max_bits=48)
    assert not found.decided
    assert found.low <= 1622224468340211918 <= found.high


def test_without_flint_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(
        RankscopeError, match=r"need python-flint\. Install it with pip install 'rankscope\[certified\]'"
    ):
        certified.min_heads(8, 2, Fraction(1, 10), "any")
