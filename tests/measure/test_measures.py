import math

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.linalg.sphere import haar_frame
from rankscope.measure.attention_mass import attention_mass
from rankscope.measure.neurons import Order, large_neurons, magnitudes, pruned_mask, separation, without
from rankscope.measure.updates import alignment, update_factors, with_update_rank


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
    with pytest.raises(ValueError, match="needs it square"):
        alignment(update[:, :3], frame)


def test_pruning_takes_the_smallest_or_the_largest():
    size = torch.tensor([[3.0, 1.0, 2.0, 5.0, 4.0]])
    assert pruned_mask(size, 0.4, Order.SMALLEST).tolist() == [[False, True, True, False, False]]
    assert pruned_mask(size, 0.4, Order.LARGEST).tolist() == [[False, False, False, True, True]]
    assert not pruned_mask(size, 0.0, Order.SMALLEST).any()


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


def test_magnitudes_are_row_norms():
    assert magnitudes(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])).tolist() == [[5.0, 0.0]]
