"""Every measurement on a case that was planted, so that its answer is known."""

import math

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.noise import RoundingNoise
from rankscope.linalg.sphere import haar_frame
from rankscope.measure.attention_mass import attention_mass
from rankscope.measure.interval import mean_interval
from rankscope.measure.neurons import (
    Order,
    knee,
    large_neurons,
    magnitudes,
    path_magnitudes,
    pruned_mask,
    separation,
    without,
)
from rankscope.measure.updates import alignment, measured_ranks, update_factors, with_update_rank


def normal(*shape, name="x"):
    return torch.randn(*shape, generator=stream(0, name), dtype=torch.float64)


def test_attention_mass_counts_the_chosen_keys_of_every_query():
    attention = torch.tensor([[[[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]]]])
    chosen = torch.tensor([[[1.0, 0.0, 1.0]]])
    assert attention_mass(attention, chosen).item() == pytest.approx((0.8 + 0.5) / 2)


def test_a_planted_update_is_recovered_and_truncated():
    start = {"w": normal(2, 6, 6), "a": normal(2, 6)}
    planted = normal(2, 6, 2, name="left") @ normal(2, 2, 6, name="right")
    end = {"w": start["w"] + planted, "a": start["a"]}
    factors = update_factors(start, end, ["w"])
    assert (factors["w"].values[:, 2] / factors["w"].values[:, 1]).max() < 1e-12
    assert torch.allclose(with_update_rank(start, end, factors, 2)["w"], end["w"])
    assert not torch.allclose(with_update_rank(start, end, factors, 1)["w"], end["w"], atol=0.1)
    assert with_update_rank(start, end, factors, 1)["a"] is end["a"]


def test_alignment_reads_an_update_written_in_patterns():
    frame = haar_frame(2, dim=5, count=5, generator=stream(0, "frame"))
    wanted = normal(2, 5, 5)
    update = frame.mT @ wanted @ frame
    assert torch.allclose(alignment(update, frame), wanted)
    with pytest.raises(InputError, match="needs it square"):
        alignment(update[:, :3], frame)


def test_measured_ranks_count_planted_directions():
    """Two directions of 3 and 4 above a noise of 0.01: 9/25 and 16/25 of the energy."""
    values = torch.tensor([4.0, 3.0, 0.01, 0.01, 0.01, 0.01], dtype=torch.float64)
    noise = RoundingNoise(torch.full((6,), 1e-4), torch.full((8,), 1e-4))
    found = measured_ranks(values, noise)
    shares = values / values.sum()
    assert found.pop("effective_rank") == pytest.approx(float((-shares * shares.log()).sum().exp()))
    assert found.pop("stable_rank") == pytest.approx(25 / 16, rel=1e-3)
    assert found == {
        "energy@0.90": 2, "energy@0.95": 2, "energy@0.99": 2, "signal_rank": 2, "gavish_donoho_rank": 2
    }  # fmt: skip
    loud = measured_ranks(values, RoundingNoise(torch.full((6,), 2.0), torch.full((8,), 2.0)))
    assert loud["signal_rank"] == 1
    assert loud["gavish_donoho_rank"] == 2


def test_pruning_takes_the_smallest_or_the_largest():
    size = torch.tensor([[3.0, 1.0, 2.0, 5.0, 4.0]])
    assert pruned_mask(size, 0.4, Order.SMALLEST).tolist() == [[False, True, True, False, False]]
    assert pruned_mask(size, 0.4, Order.LARGEST).tolist() == [[False, False, False, True, True]]
    assert not pruned_mask(size, 0.0, Order.SMALLEST).any()
    assert pruned_mask(size[0], 0.4, Order.SMALLEST).tolist() == [False, True, True, False, False]


def test_a_random_order_is_that_of_the_numbers_drawn():
    size, chance = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.3, 0.9, 0.1, 0.2])
    assert pruned_mask(size, 0.5, Order.RANDOM, chance=chance).tolist() == [False, False, True, True]
    assert pruned_mask(size, 0.5, Order.SMALLEST, chance=chance).tolist() == [True, True, False, False]
    with pytest.raises(InputError, match=r"^order=random: pass chance, a number drawn for each unit\.$"):
        pruned_mask(size, 0.5, Order.RANDOM)


def test_fractions_go_to_the_nearest_whole_unit_unless_told_otherwise():
    size = torch.arange(10.0)
    assert int(pruned_mask(size, 0.29, Order.SMALLEST).sum()) == 3
    assert int(pruned_mask(size, 0.29, Order.SMALLEST, rounding=math.floor).sum()) == 2


def test_of_equal_units_the_first_goes_first():
    equal = torch.ones(100)
    for order in (Order.SMALLEST, Order.LARGEST):
        assert pruned_mask(equal, 0.3, order).nonzero()[:, 0].tolist() == list(range(30))


def test_without_removes_what_the_neurons_added():
    parts = normal(2, 3, 4)
    gone = torch.tensor([[True, False, False, True], [False] * 4])
    assert torch.allclose(without(parts, gone)[0], parts[0, :, 1:3].sum(-1))
    assert torch.allclose(without(parts, gone)[1], parts[1].sum(-1))


def test_two_groups_are_split_and_one_is_not_mistaken_for_two():
    low, high = 0.1 * normal(1, 80).abs(), 5 + 0.1 * normal(1, 120, name="y")
    both = torch.cat([high, low], dim=-1)
    large = large_neurons(both)
    assert large[0, :120].all()
    assert not large[0, 120:].any()
    assert separation(both, large).item() > 0.99
    one = normal(1, 100_000)
    assert separation(one, large_neurons(one)).item() == pytest.approx(2 / math.pi, abs=0.01)
    flat = torch.rand(1, 100_000, generator=stream(0, "flat"), dtype=torch.float64)
    assert separation(flat, large_neurons(flat)).item() == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_the_knee_of_two_planted_sizes(share):
    count = int(400 * share)
    values = torch.cat([torch.linspace(0, 0.01, count), torch.linspace(1, 1.2, 400 - count)])
    assert knee(values) == pytest.approx(share)
    assert knee(values + 7) == pytest.approx(share)
    assert knee(torch.ones(50)) == 0


def test_a_knee_is_below_the_chord_and_needs_three_values():
    assert knee(torch.tensor([1.0, 1.0, 5.0, 1.0])) == 0.75
    assert knee(torch.tensor([0.0, 3.0, 4.0, 4.5, 5.0])) == 0, "a curve above its chord has none"
    assert knee(torch.tensor([0.0, 1.0])) == 0
    cubic = 5 + 4 * torch.linspace(0, 1, 101) ** 3
    assert knee(cubic) == 59 / 101, "t − t³ is largest at 1/√3"
    assert knee(torch.tensor([0.0, 0.0, 1.0])) == pytest.approx(2 / 3)


def test_a_path_is_as_large_as_what_is_read_times_what_is_written():
    up, gate = torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]])
    down = torch.tensor([[0.0, 3.0], [2.0, 4.0]])
    assert path_magnitudes([up, gate], down).tolist() == [[5.0, 1.0], [2.0, 5.0], [10.0, 5.0]]
    assert path_magnitudes([up], down)[0].tolist() == [3.0, 1.0]
    twice = path_magnitudes([2 * up, 2 * gate], down / 2)
    assert torch.equal(twice[2], path_magnitudes([up, gate], down)[2])


def test_the_interval_of_a_mean_is_students():
    low, high = mean_interval([1.0, 2.0, 3.0])
    half = 4.302652729911275 / math.sqrt(3)  # the 97.5% point of Student's t with two degrees of freedom
    assert (low, high) == pytest.approx((2 - half, 2 + half))
    assert mean_interval([5.0]) == (-math.inf, math.inf)


def test_magnitudes_are_row_norms():
    assert magnitudes(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])).tolist() == [[5.0, 0.0]]
