"""What a member's scale remembers goes through a state and back."""

import torch

from rankscope.training.loss_scale import GROW_AFTER, LossScale


def settled(scale, steps, overflows=()):
    for step in range(steps):
        weights = {"w": torch.zeros(1, 2)}
        weights["w"].grad = torch.full((1, 2), torch.inf if step in overflows else 1.0)
        scale.settle(weights, torch.zeros(1))
    return float(scale.factors)


def new():
    return LossScale(8.0, 1, torch.device("cpu"))


def test_a_state_has_the_factor_and_the_steps_since_the_last_overflow():
    before, after = new(), new()
    assert settled(before, GROW_AFTER - 2, overflows=[0]) == 4.0
    after.load({name: tensor.clone() for name, tensor in before.state().items()})
    assert [settled(after, 1), settled(after, 1), settled(after, 1)] == [4.0, 4.0, 8.0]
