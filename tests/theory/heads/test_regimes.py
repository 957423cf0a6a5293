import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theory.heads.lower_bound import energy_from, error_floor
from rankscope.theory.heads.regimes import (
    alternative_bound_heads,
    explicit_regime,
    head_growth_exponent,
    high_accuracy_exponent,
    high_accuracy_regime,
    high_dimensional_regime,
    limit_energy_from,
)

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_high_accuracy_exponents():
    assert [high_accuracy_exponent(64, rank) for rank in (1, 2, 4, 8, 16, 32)] == [50, 46, 39, 28, 13, -2]


@pytest.mark.parametrize("dim", [8, 16, 32, 64, 128])
def test_the_computed_floor_supports_regime_one_with_constants_one_and_two(dim):
    for rank in range(1, dim // 3):
        regime = high_accuracy_regime(dim, rank, 2 / (dim + 1), error_constant=2, head_constant=1)
        if regime.applies:
            assert error_floor(dim, rank, math.floor(2**regime.log2_heads), "any") >= 2 / (dim + 1)


def test_regime_one_needs_room_below_full_rank():
    assert not high_accuracy_regime(8, 6, 0.01, error_constant=1, head_constant=100).applies


@pytest.mark.parametrize("error", [0.05, 0.1, 0.15])
def test_regime_two_is_not_violated_with_its_exponent_constant_at_a_tenth(error):
    for dim in (64, 256, 1024, 4096):
        regime = high_dimensional_regime(dim, 1, error, least_error_constant=1, exponent_constant=0.1)
        if regime.applies:
            assert error_floor(dim, 1, math.floor(2**regime.log2_heads), "any") >= error


def test_regime_two_says_nothing_without_room():
    regime = high_dimensional_regime(64, 8, 0.1, least_error_constant=1, exponent_constant=0.1)
    assert regime.least_error == math.inf
    assert not regime.applies


@given(st.integers(3, 200), st.sampled_from(["identity", "any"]), st.integers(0, 20), st.data())
@settings(max_examples=60, deadline=None)
def test_the_explicit_regime_is_below_the_floor(dim, values, half, data):
    rank = data.draw(st.integers(1, dim - 2))
    regime = explicit_regime(dim, rank, 2 * half + 1, values)
    if regime.heads >= 1:
        assert error_floor(dim, rank, regime.heads, values) >= regime.floor * (1 - 1e-12)


def test_growth_exponents_follow_the_inverse_square_of_the_error():
    for error, exponent in REFERENCE["growth_exponent"].items():
        assert head_growth_exponent(float(error)) == exponent
    assert head_growth_exponent(0.001) * 0.001**2 == pytest.approx(0.0645, rel=1e-2)


def test_energies_in_the_limit_are_those_of_a_large_dimension():
    assert limit_energy_from(1) == 1
    assert limit_energy_from(3) == pytest.approx(1 - 2 / math.pi, abs=1e-14)
    assert limit_energy_from(9) == pytest.approx(energy_from(200_000, 9), rel=1e-4)


def test_the_alternative_bound_is_a_shape():
    assert alternative_bound_heads(64, 8, base=2, value_norm=4) == 2**54
