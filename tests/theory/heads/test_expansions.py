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
    arcsin_eigenvalue,
    arcsin_energy,
    energy_decay_constant,
    log_abs_sign_eigenvalue,
    sign_eigenvalue,
    sign_eigenvalues,
    sign_energies,
    sign_energy,
    sign_energy_limit,
)
from rankscope.theory.heads.gegenbauer import gegenbauer
from rankscope.theory.heads.lower_bound import energy_from
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
    def against(function):
        def integrand(t):
            at = np.array([t])
            return function(t) * float((inner_product_density(dim, at) * gegenbauer(degree, dim, at))[0])

        return 2 * quad(integrand, 0, 1, epsabs=1e-13)[0]

    assert sign_eigenvalue(dim, degree) == pytest.approx(against(lambda t: 1.0), abs=1e-11)
    assert arcsin_eigenvalue(dim, degree) == pytest.approx(against(math.asin), abs=1e-11)


@given(st.integers(2, 4096))
@settings(max_examples=40, deadline=None)
def test_energies_sum_to_one(dim):
    count = 300
    total = sign_energies(dim, count).sum() + energy_from(dim, 2 * count + 1)
    assert total == pytest.approx(1, abs=5e-13)


def test_arcsin_energies_sum_to_its_second_moment():
    for dim in (3, 5, 8):
        moment = (
            2
            * quad(
                lambda t, dim=dim: math.asin(t) ** 2 * float(inner_product_density(dim, np.array([t]))[0]),
                0,
                1,
            )[0]
        )
        assert sum(arcsin_energy(dim, degree) for degree in range(1, 400)) == pytest.approx(moment, rel=1e-7)


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
    assert sign_eigenvalue(8, 4) == sign_energy(8, 4) == arcsin_eigenvalue(8, 2) == 0


def test_decay_has_the_root_of_the_dimension_not_the_dimension():
    for dim in (4, 64, 1024):
        degree = 10**6 + 1
        assert sign_energy(dim, degree) * degree**2 == pytest.approx(energy_decay_constant(dim), rel=2e-3)
        assert energy_decay_constant(dim) / math.sqrt(dim) == pytest.approx(1.016, rel=0.25)
    assert energy_decay_constant(4096) / energy_decay_constant(1024) == pytest.approx(2, rel=1e-3)
    assert sign_energy(10**7, 9) == pytest.approx(sign_energy_limit(9), rel=1e-5)
