import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core.streams import stream
from rankscope.theory.heads.softmax_head import error_two_orthonormal
from rankscope.theory.heads.sphere import density_constant
from tests.reference.softmax_scores import simulate_error

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_known_errors():
    for key, value in REFERENCE["softmax_two_orthonormal"].items():
        dim, beta = map(int, re.findall(r"=(\d+)", key))
        assert error_two_orthonormal(dim, float(beta)) == pytest.approx(float(value), rel=1e-12)


@given(st.integers(2, 1000), st.floats(0, 1e4))
@settings(max_examples=30, deadline=None)
def test_a_colder_head_is_better(dim, beta):
    assert error_two_orthonormal(dim, beta * 1.1 + 0.1) < error_two_orthonormal(dim, beta) <= 0.5 + 1e-13


@pytest.mark.parametrize("dim", [3, 8, 64])
def test_two_points_reach_their_limit(dim):
    beta = 1e5
    near_ties = math.sqrt(2) * (2 * math.log(2) - 1) * density_constant(dim) / beta
    assert error_two_orthonormal(dim, beta) == pytest.approx(near_ties, rel=1e-4)


@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_simulation_of_two_points(beta):
    simulated = simulate_error(8, beta, samples=100_000, generator=stream(0, "softmax"))
    assert simulated.distance(error_two_orthonormal(8, beta)) < 4
