import math

import pytest

from rankscope.training.schedule import epoch_warmup_cosine, warmup_cosine


def test_the_rate_climbs_in_equal_steps_and_then_follows_half_a_cosine():
    steps, climb = 40, 8
    rates = [warmup_cosine(step, steps, 0.2) for step in range(steps)]
    for step, rate in enumerate(rates):
        wanted = (step + 1) / climb if step < climb else math.cos(math.pi / 2 * (step - climb) / 32) ** 2
        assert rate == pytest.approx(wanted)
    assert max(rates) == rates[climb - 1] == rates[climb] == 1.0


def test_a_climb_may_end_between_two_steps():
    """2.5 steps: the third is the first on the cosine, half a step on its way."""
    first, second, third, fourth = (warmup_cosine(step, 25, 0.1) for step in range(4))
    assert (first, second) == (1 / 2.5, 2 / 2.5)
    assert third == 1.0
    assert fourth == pytest.approx((1 + math.cos(math.pi * 0.5 / 22.5)) / 2)


def test_without_a_climb_the_first_step_has_the_whole_rate():
    assert warmup_cosine(0, 10, 0.0) == 1.0
    assert warmup_cosine(5, 10, 0.0) == pytest.approx(0.5)
    assert 0 < warmup_cosine(9, 10, 0.0) < 0.03


def test_two_epochs_that_climb_are_nothing_and_the_whole_rate():
    assert [epoch_warmup_cosine(step, 100, 0.2, 10) for step in (0, 10, 20)] == [0.0, 1.0, 1.0]
