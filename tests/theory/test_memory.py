"""Bits that answers carry, against a simulated channel and closed cases; the border scales as it must."""

import math

import numpy as np
import pytest

from rankscope.theory.memory import answer_information, memory_border, remembered_bits


@pytest.mark.parametrize(("right", "options"), [(0.7, 4), (0.3, 15), (0.98, 15)])
def test_the_information_is_that_of_a_symmetric_channel(right, options):
    """Mutual information of truth and answer, from simulated counts: wrong answers are uniform over the others."""
    random, count = np.random.default_rng(0), 400_000
    truth = random.integers(options, size=count)
    wrong = (truth + random.integers(1, options, size=count)) % options
    answer = np.where(random.random(count) < right, truth, wrong)
    joint = np.bincount(truth * options + answer, minlength=options**2).reshape(options, options) / count
    product = joint.sum(1, keepdims=True) * joint.sum(0)
    seen = joint > 0
    simulated = float((joint[seen] * np.log2(joint[seen] / product[seen])).sum())
    assert answer_information(right, options) == pytest.approx(simulated, abs=0.01)


@pytest.mark.parametrize("options", [2, 4, 15])
def test_guesses_carry_nothing_and_right_answers_everything(options):
    assert answer_information(1 / options, options) == pytest.approx(0, abs=1e-12)
    assert answer_information(1.0, options) == pytest.approx(math.log2(options))
    shares = np.linspace(1 / options, 1, 50)
    assert (np.diff([answer_information(share, options) for share in shares]) > 0).all()


def test_what_the_rule_gives_is_not_remembered():
    assert remembered_bits(0.6, 0.6, 15, 1000) == 0
    assert remembered_bits(1.0, 1 / 15, 15, 1000) == pytest.approx(1000 * math.log2(15))


def test_the_border_is_where_the_content_equals_the_capacity():
    border = memory_border(5000, answers=320, options=4, bits_per_parameter=1.5)
    assert border * 320 * 2 == pytest.approx(1.5 * 5000)
