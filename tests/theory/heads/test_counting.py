from math import comb

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from rankscope.theory.heads.counting import (
    harmonic_dim,
    slide_touched_dim,
    touched_dim,
    touched_dim_any_values,
)

DIM = st.integers(2, 200)
DEGREE = st.integers(1, 200)


@given(DIM, DEGREE)
def test_harmonics_are_polynomials_modulo_multiples_of_the_norm(dim, degree):
    total = sum(harmonic_dim(dim, degree - 2 * k) for k in range(degree // 2 + 1))
    assert total == comb(degree + dim - 1, degree)
    other = (2 * degree + dim - 2) * comb(degree + dim - 3, degree - 1)
    assert harmonic_dim(dim, degree) * degree == other


@given(DIM, DEGREE, st.data())
def test_a_head_touches_no_more_than_there_is_and_the_talks_count_is_one_rank_too_many(dim, degree, data):
    rank = data.draw(st.integers(1, dim - 1))
    assert touched_dim(dim, rank, degree) <= touched_dim_any_values(dim, rank, degree)
    assert touched_dim_any_values(dim, rank, degree) <= harmonic_dim(dim, degree)
    assert slide_touched_dim(rank, degree) == comb(degree + (rank + 1) - 1, degree)


@given(st.integers(3, 300), st.integers(0, 300), st.data())
def test_shares_never_rise_with_the_degree(dim, half, data):
    rank, degree = data.draw(st.integers(1, dim - 1)), 2 * half + 1
    for count in (touched_dim, touched_dim_any_values):
        now, later = count(dim, rank, degree), count(dim, rank, degree + 2)
        assert later * harmonic_dim(dim, degree) <= now * harmonic_dim(dim, degree + 2)


@pytest.mark.parametrize("values", ["identity", "any"])
def test_shares_never_rise_is_a_theorem(values):
    """Cross-multiplied, m(l)/N(l) − m(l+2)/N(l+2) is a polynomial without a negative coefficient."""
    p, e, m = sympy.symbols("p e m", nonnegative=True)
    rank, degree = 1 + p, 1 + m
    dim = rank + (1 if values == "identity" else 2) + e  # every rank ≤ dim − 1, or ≤ dim − 2

    def factor(at):  # M_V/M; at rank dim − 1 M_V is all of N
        return 1 if values == "identity" else 2 + at * (at - 1) / ((at + rank - 1) * (at + rank - 2))

    touched_ratio = (degree + rank + 1) * (degree + rank) / ((degree + 2) * (degree + 1))
    touched_ratio *= factor(degree + 2) / factor(degree)
    harmonic_ratio = (2 * degree + dim + 2) * (degree + dim - 2) * (degree + dim - 1)
    harmonic_ratio /= (2 * degree + dim - 2) * (degree + 1) * (degree + 2)
    above, below = sympy.fraction(sympy.cancel(touched_ratio / harmonic_ratio))
    assert min(sympy.Poly(below, p, e, m).coeffs()) > 0
    assert min(sympy.Poly(sympy.expand(below - above), p, e, m).coeffs()) > 0


def test_the_theorem_at_rank_one_and_degree_one():
    # M_V(1) = 2 there, not 3: 3/N(3) ≤ 2/d is 18 ≤ 2(d−1)(d+4)
    for dim in range(3, 200):
        assert 3 * dim <= 2 * harmonic_dim(dim, 3)


def test_full_rank_touches_everything_and_rank_one_less_at_least_half():
    for degree in range(1, 30, 2):
        assert touched_dim(8, 8, degree) == touched_dim(8, 9, degree) == harmonic_dim(8, degree)
        assert 2 * touched_dim(8, 7, degree) >= harmonic_dim(8, degree) > touched_dim(8, 7, degree)
        assert touched_dim_any_values(8, 7, degree) == harmonic_dim(8, degree)


@pytest.mark.parametrize(("rank", "degree", "count"), [(1, 1, 2), (1, 3, 3), (4, 3, 44), (2, 11, 34)])
def test_known_counts_for_any_values(rank, degree, count):
    assert touched_dim_any_values(8, rank, degree) == count
