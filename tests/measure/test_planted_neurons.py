"""Neurons whose sizes are planted, members with other answers side by side: no member may see another's."""

import pytest
import torch

from rankscope.measure.neurons import Order, large_neurons, pruned_mask, separation

SIZES = torch.tensor([[9.0, 1.0, 8.0, 1.5, 1.0], [0.0, 5.0, 5.5, 6.0, 5.0]], dtype=torch.float64)
LARGE = torch.tensor([[True, False, True, False, False], [False, True, True, True, True]])


def test_each_member_is_split_at_its_own_gap():
    found = large_neurons(SIZES)
    assert found.dtype is torch.bool
    assert torch.equal(found, LARGE)
    assert torch.equal(large_neurons(SIZES[1:]), LARGE[1:])


def test_separation_is_the_variance_between_over_the_variance_of_all():
    found = separation(SIZES, LARGE)
    for member in range(2):
        size, large = SIZES[member].tolist(), LARGE[member].tolist()
        mean = sum(size) / len(size)
        groups = [[s for s, up in zip(size, large, strict=True) if up == which] for which in (True, False)]
        between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups)
        within = sum((s - sum(group) / len(group)) ** 2 for group in groups for s in group)
        assert found[member].item() == pytest.approx(between / (between + within), rel=1e-12)


@pytest.mark.parametrize(
    ("order", "gone"),
    [
        (Order.SMALLEST, [[False, True, False, False, True], [True, False, False, False, True]]),
        (Order.LARGEST, [[True, False, True, False, False], [False, False, True, True, False]]),
    ],
)
def test_each_member_loses_its_own_smallest_or_largest(order, gone):
    sizes = SIZES + torch.tensor([0.0, 0.1, 0.0, 0.0, 0.0])  # no two alike
    found = pruned_mask(sizes, 0.4, order)
    assert found.dtype is torch.bool
    assert found.tolist() == gone


def test_as_many_neurons_go_as_the_nearest_whole_number():
    assert [int(pruned_mask(SIZES, share, Order.SMALLEST)[0].sum()) for share in (0.0, 0.29, 0.31, 1.0)] == [
        0, 1, 2, 5,
    ]  # fmt: skip
