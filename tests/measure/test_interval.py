"""Limits over seeds: as often wrong as they say, by simulation, and never better for a worse value."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.measure.interval import FEW, limits, mean_interval, values_to_decide

DRAWS = 20_000
NUMBERS = st.floats(-10, 10) | st.sampled_from([math.inf, -math.inf])


@pytest.mark.parametrize("count", [2, 3, 5, 6, 7, 8, 12, 20])
@pytest.mark.parametrize("level", [0.025, 0.025 / 4])
def test_a_limit_is_on_the_wrong_side_as_often_as_it_says(count, level):
    generator = np.random.default_rng(count)
    found = [limits(values, level) for values in generator.normal(3.0, 2.0, (DRAWS // count, count)).tolist()]
    low, high = np.array(found).T
    slack = 4 * math.sqrt(level / len(found))
    assert (low > 3).mean() <= level + slack
    assert (high < 3).mean() <= level + slack
    assert ((low == -np.inf) == (high == np.inf)).all()


@pytest.mark.parametrize("count", [6, 8, 12])
def test_no_normal_distribution_is_needed_from_six_values_on(count):
    generator = np.random.default_rng(count)
    found = np.array(
        [limits(values) for values in generator.standard_cauchy((DRAWS // count, count)).tolist()]
    )
    assert (found[:, 0] > 0).mean() <= 0.025 + 4 * math.sqrt(0.025 * count / DRAWS)


@pytest.mark.parametrize(("count", "place"), [(6, 1), (7, 3), (8, 4), (10, 9), (12, 14), (20, 53)])
def test_limits_are_walsh_averages_at_the_tabled_places(count, place):
    """Places from the published table of the signed-rank statistic, two-sided 0.05."""
    values = np.random.default_rng(0).normal(size=count)
    averages = sorted((a + b) / 2 for (i, a), (j, b) in product(enumerate(values), repeat=2) if i <= j)
    assert limits(values.tolist()) == pytest.approx((averages[place - 1], averages[-place]))


def test_no_level_is_reached_with_too_few():
    values = [1.0, 1.1, 0.9, 1.0, 1.2, 1.05]
    assert limits(values, 1 / 64) == (0.9, 1.2)
    assert limits(values, 1 / 65) == (-math.inf, math.inf)
    assert limits(values[:FEW]) == mean_interval(values[:FEW])
    assert limits([1.0]) == limits([]) == (-math.inf, math.inf)


@given(st.lists(NUMBERS, min_size=6, max_size=12), st.data())
def test_a_greater_value_never_lowers_a_limit(values, data):
    place = data.draw(st.integers(0, len(values) - 1))
    greater = data.draw(NUMBERS.filter(lambda value: value >= values[place]))
    before, after = limits(values), limits([*values[:place], greater, *values[place + 1 :]])
    assert after[0] >= before[0]
    assert after[1] >= before[1]


def test_students_interval_has_no_such_order_and_below_six_values_no_rule_could_have():
    """All n values on one side happens once in 2^n: for five that is more than 0.025, for six it is less."""
    assert mean_interval([1.0, 1.0, 5.0])[0] < 0 < mean_interval([1.0, 1.0, 1.0])[0]
    assert 2.0**-FEW > 0.025 > 2.0 ** -(FEW + 1)


@pytest.mark.parametrize("distance", [0.3, 0.5])
def test_the_number_of_values_that_decide_decides_half_of_the_time(distance):
    generator = np.random.default_rng(1)
    count = int(
        np.median(
            [values_to_decide(values, distance) for values in generator.normal(size=(200, 12)).tolist()]
        )
    )
    low = [limits(values)[0] for values in generator.normal(distance, 1.0, (300, count)).tolist()]
    assert 0.35 < np.mean([one > 0 for one in low]) < 0.65


def test_more_values_are_always_asked_for():
    assert values_to_decide([1.0, 1.0, 1.0], 0.5) == 6
    assert values_to_decide([1.0, 1.1] * 5, 5.0) == 11
    assert values_to_decide([1.0], 0.5) == values_to_decide([1.0, 2.0], 0.0) == math.inf


def test_the_number_of_values_that_decide_has_a_least():
    alike = (1.0, 1.0)
    assert values_to_decide(alike, 1.0, 0.25) == 6, "fewer have Student's interval"
    assert values_to_decide(alike, 1.0, 1e-4) == 14, "2^-14 is the first below the level"
    assert values_to_decide((1.0,) * 20, 1.0, 0.25) == 21, "these did not"
    assert values_to_decide(alike, 0.0) == values_to_decide((1.0,), 1.0) == math.inf
