import json
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.core.streams import stream
from rankscope.linalg.sphere import uniform_sphere
from rankscope.papers.amsel2024.random_features.agreement import head_agreement, target_agreement
from rankscope.papers.amsel2024.random_features.head_draws import independent_heads
from rankscope.theory.heads.rank_one import (
    advantage_closed_form,
    advantage_quadrature,
    advantage_series,
    independent_heads_prediction,
    linear_error,
    rank_one_infimum,
    single_head_success,
    target_advantage,
)
from rankscope.theory.heads.sphere import mean_over_elevation
from tests.reference.estimate import estimate

REFERENCE = json.loads((Path(__file__).parents[2] / "reference/amsel2024_theory.json").read_text())
ANGLES = {"pi/6": math.pi / 6, "pi/4": math.pi / 4, "pi/3": math.pi / 3, "pi/2": math.pi / 2} | {
    "2*pi/3": 2 * math.pi / 3,
    "pi": math.pi,
}
GRID = np.cos(np.linspace(0, math.pi, 61))


def test_known_advantages():
    for dim, table in REFERENCE["advantage"].items():
        cosine = np.array([math.cos(ANGLES[key] if key in ANGLES else float(key)) for key in table])
        exact = np.array([float(value) for value in table.values()])
        np.testing.assert_allclose(target_advantage(int(dim[2:]), cosine), exact, atol=1e-15)


@given(st.integers(7, 100))
@settings(max_examples=15, deadline=None)
def test_series_and_quadrature_agree(dim):
    np.testing.assert_allclose(advantage_series(dim, GRID), advantage_quadrature(dim, GRID), atol=2e-15)


@pytest.mark.parametrize("dim", [2, 4])
def test_closed_forms_agree_with_quadrature(dim):
    np.testing.assert_allclose(advantage_closed_form(dim, GRID), advantage_quadrature(dim, GRID), atol=1e-13)


@pytest.mark.parametrize("dim", [3, 8, 40])
def test_advantage_is_odd_and_largest_for_equal_query_and_key(dim):
    values = target_advantage(dim, GRID)
    np.testing.assert_allclose(values, -values[::-1], atol=1e-15)
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("dim", [3, 8])
def test_agreement_frequencies_of_simulated_heads(dim):
    q, k = independent_heads(dim, 3, stream(0, "agreement", dim))
    generator = stream(1, "agreement", dim)
    w = uniform_sphere(200_000, dim=dim, generator=generator)
    y = uniform_sphere(200_000, dim=dim, generator=generator)
    votes = ((w @ k.T) * (y @ q.T)).sign()
    truth = (w * y).sum(dim=1).sign()
    agreement, with_target = head_agreement(q, k), target_agreement(q, k)
    for i in range(3):
        assert estimate((votes[:, i] == truth).double()).distance(with_target[i].item()) < 4
        for j in range(i):
            assert estimate((votes[:, i] == votes[:, j]).double()).distance(agreement[i, j].item()) < 4


def test_the_diagonal_is_one_to_the_last_digit():
    q, k = independent_heads(8, 50, stream(0, "diagonal"))
    assert torch.equal(torch.diagonal(head_agreement(q, k)), torch.ones(50, dtype=torch.float64))


def test_one_head_is_right_more_often_than_a_coin_by_a_quarter_over_root_dim():
    for dim, value in REFERENCE["single_head_success"].items():
        assert single_head_success(int(dim[2:])) == pytest.approx(float(value), abs=1e-15)
    slope = (single_head_success(1024) - 0.5) * math.sqrt(1024)
    assert slope == pytest.approx(math.sqrt(2 / math.pi) / math.pi, rel=1e-3)


@given(st.integers(2, 4096))
@settings(max_examples=30, deadline=None)
def test_one_head_is_the_mean_of_the_conditional_probability(dim):
    mean_angle = mean_over_elevation(dim, lambda phi: phi, width=math.pi / 2)
    assert single_head_success(dim) == pytest.approx(0.5 + mean_angle / math.pi, abs=2e-15)


def test_known_predictions():
    for key, value in REFERENCE["prediction"].items():
        dim, heads = map(int, re.findall(r"=(\d+)", key))
        assert independent_heads_prediction(dim, heads) == pytest.approx(value, abs=1e-8)


def test_the_prediction_falls_with_heads_and_stays_above_the_infimum():
    errors = [independent_heads_prediction(16, 4**power) for power in range(12)]
    assert all(later < before for before, later in pairwise(errors))
    assert all(error > rank_one_infimum(16, 4**power) for power, error in enumerate(errors))


def test_in_dim_six_the_quadrature_is_the_closed_form():
    theta = np.linspace(0.3, math.pi / 2, 20)
    cot = 1 / np.tan(theta)
    exact = 0.5 - (4 * theta**2 + 5 * theta * cot + cot**2 * (1 - theta * cot)) / (2 * math.pi**2)
    np.testing.assert_allclose(advantage_quadrature(6, np.cos(theta)), exact, atol=1e-13)


def test_random_heads_rest_on_a_plateau_where_degree_three_begins():
    assert linear_error(8) == pytest.approx(0.16121504636815060, abs=1e-15)
    assert independent_heads_prediction(64, 4**12) == pytest.approx(linear_error(64), rel=1e-3)
