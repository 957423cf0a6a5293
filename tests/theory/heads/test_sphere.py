import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_gegenbauer, eval_legendre

from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.sphere import gegenbauer, half_gamma_ratio, inner_product_quadrature

T = np.linspace(-1, 1, 41)


def test_dim_two_is_the_cosine_and_dim_three_legendre():
    np.testing.assert_allclose(gegenbauer(7, 2, T), np.cos(7 * np.arccos(T)), atol=1e-13)
    np.testing.assert_allclose(gegenbauer(9, 3, T), eval_legendre(9, T), atol=1e-13)


@given(degree=st.integers(0, 60), dim=st.integers(3, 40))
@settings(max_examples=40, deadline=None)
def test_recurrence_is_scipys_polynomial_rescaled_to_one(degree, dim):
    alpha = dim / 2 - 1
    expected = eval_gegenbauer(degree, alpha, T) / eval_gegenbauer(degree, alpha, 1.0)
    np.testing.assert_allclose(gegenbauer(degree, dim, T), expected, rtol=1e-8, atol=1e-12)


@given(dim=st.integers(2, 30), low=st.integers(0, 12), high=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_orthogonal_with_norm_one_over_n(dim, low, high):
    nodes, weights = inner_product_quadrature(dim, 16)
    product = weights @ (gegenbauer(low, dim, nodes) * gegenbauer(high, dim, nodes))
    expected = 1 / harmonic_dim(dim, low) if low == high else 0.0
    assert product == pytest.approx(expected, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize(("degree", "dim"), [(1000, 3), (999, 64), (37, 4096)])
def test_stable_to_degree_1000_or_dim_4096(degree, dim):
    points = np.array([0.003, 0.1, 0.5, 0.9, 0.999])
    for t, found in zip(points, gegenbauer(degree, dim, points), strict=True):
        with mpmath.workdps(degree + 60):

            def exact(n, t=t):
                top = mpmath.gegenbauer(n, mpmath.mpf(dim) / 2 - 1, mpmath.mpf(float(t)))
                return top / mpmath.binomial(n + dim - 3, n)

            # near a zero only the amplitude of the oscillation is a fair measure; P' is about l/√(1−t²)
            # times as large, so a backward stable method is off by a few roundings of t times that
            amplitude = mpmath.hypot(exact(degree), exact(degree + 1))
            roundings = 4 * np.finfo(float).eps * (1 + degree / math.sqrt(1 - t * t))
            assert abs(float((mpmath.mpf(float(found)) - exact(degree)) / amplitude)) < roundings


@given(st.floats(0.25, 1e7))
def test_half_gamma_ratio_to_full_precision(x):
    with mpmath.workdps(40):
        exact = mpmath.gammaprod([mpmath.mpf(x) + 0.5], [mpmath.mpf(x)])
        assert abs(float(mpmath.mpf(float(half_gamma_ratio(x))) / exact - 1)) < 2e-15
