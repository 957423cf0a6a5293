"""The rank that is needed, where it was planted; and shared directions of spaces that are known."""

import math

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.measure.needed_rank import needed_rank
from rankscope.measure.subspaces import principal_cosines

RANKS = (0, 1, 2, 4, 8)


def test_the_least_rank_that_keeps_the_share_is_found():
    losses = torch.tensor([1.0, 0.6, 0.04, 0.01, 0.0]).unsqueeze(1).expand(5, 50)
    for share, rank in ((0.3, 1), (0.95, 2), (0.96, 2), (0.97, 4), (1.0, 8)):
        found = needed_rank(losses, RANKS, share)
        assert (found.rank, found.low, found.high) == (rank, rank, rank)
        assert found.log2 == pytest.approx(math.log2(rank))


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


def test_principal_cosines_count_what_is_shared():
    basis = torch.linalg.qr(torch.randn(12, 12, generator=stream(0, "basis"), dtype=torch.float64))[0]
    turn = torch.linalg.qr(torch.randn(4, 4, generator=stream(0, "turn"), dtype=torch.float64))[0]
    tilted = math.cos(0.5) * basis[1:2] + math.sin(0.5) * basis[8:9]
    one, other = turn @ basis[:4], torch.cat([basis[:1], tilted, basis[4:6]])
    expected = torch.tensor([1.0, math.cos(0.5), 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(principal_cosines(one, other), expected)
    assert float(principal_cosines(one, one).square().sum()) == pytest.approx(4.0)


def test_random_spaces_share_as_many_directions_as_chance_gives():
    generator = stream(0, "spaces")
    pairs = [
        torch.linalg.qr(torch.randn(2, 64, 16, generator=generator, dtype=torch.float64))[0].mT
        for _ in range(40)
    ]
    shared = [float(principal_cosines(*pair).square().sum()) for pair in pairs]
    assert sum(shared) / len(shared) == pytest.approx(16**2 / 64, abs=0.2)
