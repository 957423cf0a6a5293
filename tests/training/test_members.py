"""A stack's state as one state per member, and back."""

import pytest
import torch

from rankscope.training.adamw import AdamW, Step
from rankscope.training.members import joined, parted


def step(members, loss_scale=1.0):
    weights = {"a": torch.arange(2.0 * members).reshape(members, 2) + 1, "b": torch.ones(members)}
    return Step(
        weights,
        lambda number: None,
        lambda leaves, _: (leaves["a"].sum(1) * leaves["b"]).square(),
        AdamW(steps=5, batch=1, learning_rate=0.1),
        loss_scale,
    )


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**12])
def test_members_apart_and_together_again_are_the_stack(loss_scale):
    stack = step(3, loss_scale)
    for number in range(3):
        stack(number)
    state = stack.state(3)
    apart = parted(state)
    assert [tuple(one["losses"].shape) for one in apart] == [(3, 1)] * 3
    whole = joined(apart)
    torch.testing.assert_close(whole, state, rtol=0, atol=0)
    turned = joined([apart[2], apart[0]])
    again = step(2, loss_scale)
    again.begin(turned)
    for number in (3, 4):
        stack(number)
        again(number)
    torch.testing.assert_close(again.history, stack.history[:, [2, 0]], rtol=0, atol=0)
    torch.testing.assert_close(again.leaves["a"], stack.leaves["a"][[2, 0]], rtol=0, atol=0)
