"""The rank that is needed, where it was planted; and directions that recur, where they were planted."""

import math

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.measure.needed_rank import needed_rank
from rankscope.measure.recurrence import recurrence

RANKS = (0, 1, 2, 4, 8)


def test_the_least_rank_that_keeps_the_share_is_found():
    losses = torch.tensor([1.0, 0.6, 0.04, 0.01, 0.0]).unsqueeze(1).expand(5, 50)
    for share, rank in ((0.3, 1), (0.95, 2), (0.96, 2), (0.97, 4), (1.0, 8)):
        found = needed_rank(losses, RANKS, share)
        assert (found.rank, found.low, found.high) == (rank, rank, rank)
        assert found.log2 == pytest.approx(math.log2(rank))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_loss_makes_no_difference(unit):
    losses = unit * torch.tensor([1.0, 0.6, 0.04, 0.01, 0.0], dtype=torch.float64).unsqueeze(1).expand(5, 3)
    assert needed_rank(losses, RANKS, 0.95) == (2, 1, 2, 2)


def test_examples_that_disagree_leave_an_interval_and_their_resamples_are_paired():
    torch.manual_seed(0)
    hard = (torch.arange(200) < 11).double()  # 11 of 200 examples, 5.5% of the gain, need rank 4
    losses = torch.stack([torch.ones(200).double(), hard, hard, 0 * hard, 0 * hard])
    found = needed_rank(losses, RANKS, 0.95)
    assert (found.rank, found.low, found.high) == (4, 1, 4)
    assert 0.5 < found.log2 < 1.5
    shared_noise = 5 * torch.randn(200, generator=stream(0, "noise"))
    same = needed_rank(losses + shared_noise, RANKS, 0.95)
    assert same == found, "what an example has at every rank cancels"


def test_where_nothing_was_gained_no_rank_is_needed():
    assert all(math.isnan(value) for value in needed_rank(torch.ones(5, 20), RANKS, 0.95))
    worse = torch.arange(5.0).unsqueeze(1).expand(5, 20)
    assert math.isnan(needed_rank(worse, RANKS, 0.95).rank)


def matrix(*directions, seed=0, noise=0.0):
    """A matrix with planted directions, each a size and a place in two fixed bases, and noise."""
    bases = torch.linalg.qr(torch.randn(2, 48, 48, generator=stream(0, "bases"), dtype=torch.float64))[0]
    planted = sum(size * torch.outer(bases[0][:, u], bases[1][:, v]) for size, u, v in directions)
    return planted + noise * torch.randn(48, 48, generator=stream(seed, "noise"), dtype=torch.float64)


def recurring(one, other):
    left, values, right = torch.linalg.svd(one)
    return recurrence(left[:, :6], values[:6, None] * right[:6], other).tolist()


def test_directions_that_both_matrices_have_recur_and_noise_does_not():
    signal = [(4.0, 0, 0), (3.0, 1, 1), (2.0, 2, 2)]
    one, other = (matrix(*signal, seed=seed, noise=0.02) for seed in (1, 2))
    found = recurring(one, other)
    assert found[:3] == pytest.approx([1.0] * 3, abs=0.05)
    assert max(found[3:]) < 0.3


def test_reading_the_same_is_not_enough_nor_is_the_opposite():
    one = matrix((4.0, 0, 0), (3.0, 1, 1), (2.0, 2, 2))
    assert recurring(one, matrix((4.0, 0, 0), (3.0, 9, 1), (-2.0, 2, 2)))[:3] == pytest.approx(
        [1, 0, 0], abs=1e-9
    )
    assert recurring(one, matrix((2.0, 0, 0), (30.0, 1, 1)))[:3] == pytest.approx([0.5, 1, 0], abs=1e-9)
