"""A_N and what a miss costs, against draws of two correlated scores."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rankscope.core import InputError
from rankscope.theory.points.agreement import agreement, agreements, joint_below, largest_moment, miss, recall


def drawn(correlation, keys, trials=200_000):
    generator = np.random.default_rng(1)
    x, z = generator.standard_normal((2, trials, keys))
    y = correlation * x + math.sqrt(1 - correlation**2) * z
    i, j = x.argmax(1), y.argmax(1)
    row = np.arange(trials)
    return i == j, x[row, i] - x[row, j], y[row, i] - y[row, j]


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.3, 0.99])
def test_the_joint_distribution_is_scipys(correlation):
    places = np.array([[0.5, -1.0], [-0.3, -0.2], [2.0, 1.0], [1e-9, 0.7]])
    ours = joint_below(places[:, 0], places[:, 1], correlation)
    theirs = multivariate_normal(cov=[[1, correlation], [correlation, 1]]).cdf(places)
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("correlation", [-0.9, -0.2, 0.4, 0.999999])
def test_two_keys_have_a_closed_form(correlation):
    assert agreement(correlation, 2) == pytest.approx(0.5 + math.asin(correlation) / math.pi, abs=1e-9)


@pytest.mark.parametrize(("correlation", "keys"), [(0.3, 15), (0.8, 15), (0.97, 40), (-0.5, 5), (-0.95, 15)])
def test_agreement_and_miss_are_those_of_draws(correlation, keys):
    same, x, y = drawn(correlation, keys, 2_000_000 // keys)
    off = 4 / math.sqrt(len(same))
    assert agreement(correlation, keys) == pytest.approx(same.mean(), abs=0.5 * off)
    found = miss(correlation, keys)
    assert found.probability == pytest.approx(1 - agreement(correlation, keys), abs=1e-9)
    assert found.squared == pytest.approx((x**2).mean(), abs=off * (x**2).std())
    assert found.squared == pytest.approx((y**2).mean(), abs=off * (y**2).std())
    assert found.product == pytest.approx((x * y).mean(), abs=off * (x * y).std())


def test_the_ends_are_exact_and_the_table_follows_the_integral():
    assert (agreement(1.0, 9), agreement(-1.0, 9), agreement(0.4, 1)) == (1.0, 0.0, 1.0)
    for keys in (15, 100_000):
        assert agreement(0.0, keys) == pytest.approx(1 / keys, rel=1e-6)
        places = np.array([-0.8, -0.2, 0.05, 0.33, 0.72, 0.95, 0.9991])
        exact = [agreement(place, keys) for place in places]
        assert agreements(places, keys) == pytest.approx(exact, abs=1e-3)


def test_recall_of_many_keys_is_that_of_draws():
    generator = np.random.default_rng(8)
    x, z = generator.standard_normal((2, 300, 4000))
    for correlation in (0.5, 0.9):
        y = correlation * x + math.sqrt(1 - correlation**2) * z
        best = [np.argpartition(-score, 100, axis=1)[:, :100] for score in (x, y)]
        shared = np.mean([len(np.intersect1d(*pair)) / 100 for pair in zip(*best, strict=True)])
        assert recall(np.array([correlation]), 4000, 100)[0] == pytest.approx(shared, abs=0.01)
    with pytest.raises(InputError, match="top=5 of 5 keys"):
        recall(np.array([0.5]), 5, 5)


def test_the_largest_moment_is_that_of_draws():
    x = np.random.default_rng(2).standard_normal((100_000, 15)).max(1)
    assert largest_moment(15) == pytest.approx((x**2).mean(), abs=0.03)


def test_bad_numbers_are_named():
    with pytest.raises(InputError, match=r"correlation=1.5: a correlation lies in \[−1, 1\]"):
        agreement(1.5, 3)
    with pytest.raises(InputError, match="keys=0: at least one key is needed"):
        agreement(0.5, 0)
    with pytest.raises(InputError, match="nothing can be missed"):
        miss(1.0, 3)
