import json
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from rankscope.theory.heads.prediction import (
    independent_heads_prediction,
    opposite_pairs_limit,
    pair_moment,
    plateau,
    rank_one_infimum,
    same_query_key_limit,
)
from tests.reference.sphere import inner_product_density

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())


def test_known_predictions():
    for key, value in REFERENCE["prediction"].items():
        dim, heads = map(int, re.findall(r"=(\d+)", key))
        assert independent_heads_prediction(dim, heads) == pytest.approx(value, abs=1e-8)


def test_the_prediction_falls_with_heads_and_stays_above_the_infimum():
    errors = [independent_heads_prediction(16, 4**power) for power in range(12)]
    assert all(later < before for before, later in pairwise(errors))
    assert all(error > rank_one_infimum(16, 4**power) for power, error in enumerate(errors))


def test_random_heads_rest_on_a_plateau_where_degree_three_begins():
    assert plateau(8) == pytest.approx(0.16121504636815060, abs=1e-15)
    assert independent_heads_prediction(64, 4**12) == pytest.approx(plateau(64), rel=1e-3)


@pytest.mark.parametrize("dim", [3, 8])
def test_pair_moment_is_the_second_moment_of_the_arcsine(dim):
    moment, _ = quad(lambda t: math.asin(t) ** 2 * float(inner_product_density(dim, np.array([t]))[0]), -1, 1)
    assert pair_moment(dim) == pytest.approx(4 / math.pi**2 * moment, rel=1e-8)


def test_known_limits_of_heads_with_equal_query_and_key():
    for dim, value in REFERENCE["same_query_key"].items():
        assert same_query_key_limit(int(dim[2:])) == pytest.approx(float(value), abs=3e-15)
    for dim, value in REFERENCE["opposite_pairs"].items():
        assert opposite_pairs_limit(int(dim[2:])) == pytest.approx(float(value), abs=3e-15)
