import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core.streams import stream
from rankscope.theory.heads.softmax_head import error_limit, error_two_independent, error_two_orthonormal
from tests.reference.softmax_scores import simulate_error

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_known_errors():
    for key, value in REFERENCE["softmax_two_orthonormal"].items():
        dim, beta = map(int, re.findall(r"=(\d+)", key))
        assert error_two_orthonormal(dim, float(beta)) == pytest.approx(float(value), rel=1e-12)
    for key, value in REFERENCE["softmax_two_independent"].items():
        dim, beta = map(int, re.findall(r"=(\d+)", key))
        assert error_two_independent(dim, float(beta)) == pytest.approx(value, rel=1e-8)


@given(st.integers(2, 1000), st.floats(0, 1e4))
@settings(max_examples=30, deadline=None)
def test_a_colder_head_is_better(dim, beta):
    assert error_two_orthonormal(dim, beta * 1.1 + 0.1) < error_two_orthonormal(dim, beta) <= 0.5 + 1e-13


@pytest.mark.parametrize("dim", [3, 8, 64])
def test_two_points_reach_their_limit(dim):
    beta = 1e5
    assert error_two_orthonormal(dim, beta) == pytest.approx(
        error_limit(dim, 2, beta, "orthonormal"), rel=1e-4
    )
    assert error_two_independent(dim, beta) == pytest.approx(
        error_limit(dim, 2, beta, "independent"), rel=1e-3
    )


@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_simulation_of_two_points(beta):
    orthonormal = simulate_error(8, 2, beta, "orthonormal", samples=100_000, generator=stream(0, "softmax"))
    independent = simulate_error(8, 2, beta, "independent", samples=100_000, generator=stream(1, "softmax"))
    assert orthonormal.distance(error_two_orthonormal(8, beta)) < 4
    assert independent.distance(error_two_independent(8, beta)) < 4


@pytest.mark.parametrize("law", ["orthonormal", "independent"])
def test_simulation_of_more_points_meets_the_limit(law):
    simulated = simulate_error(8, 4, 1000.0, law, samples=400_000, generator=stream(0, "limit", law))
    assert simulated.distance(error_limit(8, 4, 1000.0, law)) < 4
