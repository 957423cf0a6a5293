import pytest

from rankscope.theory.heads.expansions import sign_eigenvalue
from rankscope.theory.heads.representation import representer_norm, representer_peak


def test_the_representer_diverges():
    peaks = [abs(representer_peak(4, degree)) for degree in (50, 100, 200)]
    norms = [representer_norm(4, degree) for degree in (51, 101, 201)]
    assert peaks[0] == pytest.approx(2.65e6, rel=1e-3)
    assert peaks[1] == pytest.approx(4.08e7, rel=1e-3)
    assert peaks[2] > 10 * peaks[1]
    assert norms[2] > 8 * norms[1] > 64 * norms[0]
    assert 1 / abs(sign_eigenvalue(4, 201)) > 1 / abs(sign_eigenvalue(4, 101)) > 1e3
