import json
import math
from pathlib import Path

import pytest

from rankscope.theory.heads.lower_bound import energy_from, error_floor
from rankscope.theory.heads.regimes import (
    head_growth_exponent,
    high_accuracy_exponent,
    high_dimensional_exponent,
    limit_energy_from,
)

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_high_accuracy_exponents():
    assert [high_accuracy_exponent(64, rank) for rank in (1, 2, 4, 8, 16, 32)] == [50, 46, 39, 28, 13, -2]


@pytest.mark.parametrize("dim", [8, 16, 32, 64, 128])
def test_the_computed_floor_supports_regime_one_with_constants_one_and_two(dim):
    for rank in range(1, dim // 3):
        exponent = high_accuracy_exponent(dim, rank)
        if exponent >= 0:
            assert error_floor(dim, rank, math.floor(2**exponent), "any") >= 2 / (dim + 1)


@pytest.mark.parametrize("error", [0.05, 0.1, 0.15])
def test_regime_two_is_not_violated_with_its_exponent_constant_at_a_tenth(error):
    for dim in (64, 256, 1024, 4096):
        exponent = high_dimensional_exponent(dim, 1, error, least_error_constant=1, power_constant=0.1)
        if exponent >= 0:
            assert error_floor(dim, 1, math.floor(2**exponent), "any") >= error


@pytest.mark.parametrize(("dim", "rank", "error"), [(64, 8, 0.1), (128, 8, 0.1), (4, 0, 0.4)])
def test_regime_two_says_nothing_without_room(dim, rank, error):
    assert math.isnan(high_dimensional_exponent(dim, rank, error, least_error_constant=1, power_constant=0.1))


def test_growth_exponents_follow_the_inverse_square_of_the_error():
    for error, exponent in REFERENCE["growth_exponent"].items():
        assert head_growth_exponent(float(error)) == exponent
    assert head_growth_exponent(0.001) * 0.001**2 == pytest.approx(0.0645, rel=1e-2)


def test_energies_in_the_limit_are_those_of_a_large_dimension():
    assert limit_energy_from(1) == 1
    assert limit_energy_from(3) == pytest.approx(1 - 2 / math.pi, abs=1e-14)
    assert limit_energy_from(9) == pytest.approx(energy_from(200_000, 9), rel=1e-4)
