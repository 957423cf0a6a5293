import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from rankscope.theory.heads.counting import harmonic_dim
from rankscope.theory.heads.expansions import (
    log_abs_sign_eigenvalue,
    representer_norm,
    sign_eigenvalue,
    sign_eigenvalues,
    sign_energies,
    sign_energy,
    sign_energy_limit,
)
from rankscope.theory.heads.lower_bound import energy_from
from rankscope.theory.heads.sphere import density_constant, gegenbauer
from tests.reference.sphere import inner_product_density

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())
ODD = st.integers(0, 300).map(lambda half: 2 * half + 1)


@given(st.integers(2, 4096))
@settings(max_examples=60, deadline=None)
def test_recurrences_follow_the_closed_forms(dim):
    energies, eigenvalues = sign_energies(dim, 200), sign_eigenvalues(dim, 200)
    for index in (0, 1, 2, 50, 199):
        degree = 2 * index + 1
        assert energies[index] == pytest.approx(sign_energy(dim, degree), rel=1e-12)
        if log_abs_sign_eigenvalue(dim, degree) > -690:
            assert eigenvalues[index] == pytest.approx(sign_eigenvalue(dim, degree), rel=1e-11)


@pytest.mark.parametrize("dim", [3, 4, 8, 17])
@pytest.mark.parametrize("degree", [1, 3, 7])
def test_eigenvalues_are_the_integrals_they_stand_for(dim, degree):
    def integrand(t):
        at = np.array([t])
        return float((inner_product_density(dim, at) * gegenbauer(degree, dim, at))[0])

    integral = 2 * quad(integrand, 0, 1, epsabs=1e-13)[0]
    assert sign_eigenvalue(dim, degree) == pytest.approx(integral, abs=1e-11)


@given(st.integers(2, 4096))
@settings(max_examples=40, deadline=None)
def test_energies_sum_to_one(dim):
    count = 300
    total = sign_energies(dim, count).sum() + energy_from(dim, 2 * count + 1)
    assert total == pytest.approx(1, abs=5e-13)


@given(st.integers(2, 400), ODD)
@settings(max_examples=60, deadline=None)
def test_energy_is_n_times_the_eigenvalue_squared(dim, degree):
    log_energy = math.log(harmonic_dim(dim, degree)) + 2 * log_abs_sign_eigenvalue(dim, degree)
    beta = (
        math.lgamma(degree / 2) + math.lgamma(dim / 2) - math.lgamma((degree + dim) / 2) - math.log(math.pi)
    )
    assert log_energy == pytest.approx(math.log(sign_energy(dim, degree)), abs=1e-10)
    assert log_abs_sign_eigenvalue(dim, degree) == pytest.approx(beta, abs=1e-9)


def test_known_values():
    for dim, table in REFERENCE["energy"].items():
        for degree, value in table.items():
            assert sign_energy(int(dim[2:]), int(degree)) == pytest.approx(float(value), rel=2e-15)
    for dim, table in REFERENCE["eigenvalue"].items():
        for degree, value in table.items():
            assert sign_eigenvalue(int(dim[2:]), int(degree)) == pytest.approx(float(value), rel=3e-14)
    assert sign_eigenvalue(8, 4) == sign_energy(8, 4) == 0


def test_decay_has_the_root_of_the_dimension_not_the_dimension():
    degree = 10**6 + 1
    for dim in (4, 64, 1024):
        constant = 8 / math.pi * density_constant(dim)  # 1.016 √d for large d
        assert sign_energy(dim, degree) * degree**2 == pytest.approx(constant, rel=2e-3)
    assert sign_energy(1024, degree) / sign_energy(256, degree) == pytest.approx(2, rel=2e-3)
    assert sign_energy(10**7, 9) == pytest.approx(sign_energy_limit(9), rel=1e-5)


def test_the_representer_diverges():
    assert representer_norm(4, 50) == pytest.approx(1.98e5, rel=5e-3)
    norms = [representer_norm(4, degree) for degree in (51, 101, 201)]
    assert norms[2] > 8 * norms[1] > 64 * norms[0]
    assert 1 / abs(sign_eigenvalue(4, 201)) > 1 / abs(sign_eigenvalue(4, 101)) > 1e3
