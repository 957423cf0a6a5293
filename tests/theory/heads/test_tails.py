import mpmath
import pytest

from rankscope.theory.heads.tails import (
    TermRatio,
    asymptotic_coefficients,
    energy_ratio,
    tail_over_first,
    touched_energy_ratio,
)


def test_a_tail_with_a_known_sum():
    # f(l) = 1/(l(l+2)): the ratio is l/(l+4) and the tail telescopes to 1/(2l)
    ratio = TermRatio(((0, 1),), ((4, 1),), asymptotic_from=64)
    for degree in (1, 7, 1001):
        assert tail_over_first(ratio, degree) == pytest.approx((degree + 2) / 2, rel=1e-14)
    assert [float(c) for c in asymptotic_coefficients(ratio)[:4]] == [0.5, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "ratio",
    [energy_ratio(8), energy_ratio(3), touched_energy_ratio(8, 6, "any"), touched_energy_ratio(5, 1, "any")],
)
def test_tails_against_extrapolated_sums(ratio):
    def at(degree):
        value = mpmath.mpf(1)
        for above, below in zip(ratio.numerator, ratio.denominator, strict=True):
            value *= mpmath.polyval(list(reversed(above)), degree) / mpmath.polyval(
                list(reversed(below)), degree
            )
        return value

    with mpmath.workdps(40):
        terms = {0: mpmath.mpf(1)}

        def term(j):
            j = int(j)
            for known in range(max(terms) + 1, j + 1):
                terms[known] = terms[known - 1] * at(3 + 2 * (known - 1))
            return terms[j]

        exact = mpmath.nsum(term, [0, mpmath.inf], method="r+s")
        assert abs(float(tail_over_first(ratio, 3) / exact - 1)) < 1e-13


def test_the_asymptotic_series_takes_over_without_a_seam():
    ratio = touched_energy_ratio(16, 14, "any")
    later = TermRatio(ratio.numerator, ratio.denominator, asymptotic_from=8 * ratio.asymptotic_from)
    assert tail_over_first(ratio, 5) == pytest.approx(tail_over_first(later, 5), rel=1e-14)
