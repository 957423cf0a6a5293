import mpmath
from hypothesis import given
from hypothesis import strategies as st

from rankscope.theory.heads.gamma import half_gamma_ratio


@given(st.floats(0.25, 1e7))
def test_half_gamma_ratio_to_full_precision(x):
    with mpmath.workdps(40):
        exact = mpmath.gammaprod([mpmath.mpf(x) + 0.5], [mpmath.mpf(x)])
        assert abs(float(mpmath.mpf(float(half_gamma_ratio(x))) / exact - 1)) < 2e-15
