"""Means with a known answer: attention on chosen keys, and the interval of a mean over seeds."""

import math

import pytest
import torch

from rankscope.measure.attention_mass import attention_mass
from rankscope.measure.interval import mean_interval


def test_attention_is_averaged_over_queries_and_samples_and_not_over_members():
    """Two members of three samples of two queries and four keys; each sample has chosen keys of its own."""
    attention = torch.zeros(2, 3, 2, 4)
    chosen = torch.zeros(2, 3, 4)
    for member in range(2):
        for sample in range(3):
            key = (member + sample) % 4
            chosen[member, sample, key] = 1.0
            attention[member, sample, 0, key] = 0.5 + member / 4
            attention[member, sample, 0, (key + 1) % 4] = 0.5 - member / 4
            attention[member, sample, 1, (key + 2) % 4] = 1.0 - 0.3 * sample
            attention[member, sample, 1, key] = 0.3 * sample
    found = attention_mass(attention, chosen)
    assert found.tolist() == pytest.approx([(0.5 + 0.3) / 2, (0.75 + 0.3) / 2])


def test_two_seeds_give_an_interval_and_one_gives_none():
    low, high = mean_interval([0.0, 1.0])
    t = math.tan(math.pi * 0.475)  # Student's t with one degree of freedom is Cauchy's distribution
    assert (low, high) == pytest.approx((0.5 - t / 2, 0.5 + t / 2))
    for few in ([], [1.0]):
        assert mean_interval(few) == (-math.inf, math.inf)


def test_seeds_that_agree_leave_no_width():
    assert mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
