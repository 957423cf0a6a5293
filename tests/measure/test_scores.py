"""Each score against a slow twin, or against what it promises: the Taylor score is a derivative."""

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.ensembles import layered, patterns
from rankscope.ensembles.layered import Layered, Norm
from rankscope.measure import scores
from rankscope.measure.neurons import magnitudes

MODEL = Layered(dim=6, layers=2, heads=3, hidden=4, residual=True, norm=Norm.UNIT)
SHAPE = (2, 3, 2, 5)


def normal(*shape, name="x"):
    return torch.randn(*shape, generator=stream(0, name), dtype=torch.float64)


def test_magnitudes_and_movement_are_norms_of_all_that_a_unit_is():
    start, end = normal(*SHAPE), normal(*SHAPE, name="end")
    for member in range(2):
        for unit in range(3):
            size = sum(float(w) ** 2 for w in start[member, unit].flatten()) ** 0.5
            moved = sum(float(w) ** 2 for w in (end - start)[member, unit].flatten()) ** 0.5
            assert magnitudes(start)[member, unit].item() == pytest.approx(size)
            assert scores.movement(start, end)[member, unit].item() == pytest.approx(moved)
    assert torch.equal(magnitudes(start[:, :, :1]), magnitudes(start[:, :, 0]))


def test_activation_weighs_each_weight_by_the_norm_of_its_input():
    weights, inputs = normal(*SHAPE), normal(2, 7, 5, name="inputs")
    found = scores.activation(weights, inputs)
    for member in range(2):
        for unit in range(3):
            total = 0.0
            for row in range(2):
                for column in range(5):
                    total += abs(weights[member, unit, row, column]) * inputs[member, :, column].norm()
            assert found[member, unit].item() == pytest.approx(float(total))


def test_activation_ignores_the_sign_and_follows_the_scale_of_an_input():
    weights, inputs = normal(*SHAPE), normal(2, 7, 5, name="inputs")
    assert torch.allclose(scores.activation(weights, inputs), scores.activation(-weights, -inputs))
    silent = inputs.clone()
    silent[..., 1:] = 0
    only = weights[..., 0].abs().sum(-1) * inputs[..., 0].norm(dim=1, keepdim=True)
    assert torch.allclose(scores.activation(weights, silent), only)


@pytest.mark.parametrize(("kind", "units"), [("w_o", 4), ("w_v", 3)])
def test_taylor_is_the_change_of_the_loss_as_a_unit_starts_to_go(kind, units):
    """Against a finite difference: an infinitesimal part of each neuron and of each head is taken away."""
    weights = layered.init([MODEL] * 2, [0, 1], dtype=torch.float64)
    weights |= {name: normal(*weights[name].shape, name=name) for name in MODEL.trained}
    x = normal(2, 8, 4, 6)
    labels = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64).expand(2, 8)
    name, part = f"{kind}/1", 1e-6
    _, grads = layered.hinge_gradients(MODEL, weights, x, labels)
    found = scores.taylor(scores.units(weights[name], units), scores.units(grads[name], units))

    def loss(now):
        return patterns.hinge(layered.forward(MODEL, now, x), labels).mean(-1)

    for unit in range(units):
        less = scores.units(weights[name], units).clone()
        less[:, unit] *= 1 - part
        change = (loss({**weights, name: less.flatten(1, 2)}) - loss(weights)) / part
        assert torch.allclose(found[:, unit], change.abs(), rtol=1e-3, atol=1e-7)
    assert (found > 1e-3).any()


def test_the_flat_part_ends_where_the_loss_first_crosses_the_limit():
    added = torch.tensor(
        [[0.0, 0.01, 0.03, 0.0], [0.04, 0.0, 0.0, 0.0], [0.0, 0.02, -0.1, 0.02], [0.0, 0.0, 0.0, 1.0]]
    )
    found = scores.flat_part(added.double(), (0.25, 0.5, 0.75, 1.0), 0.02)
    assert found.tolist() == pytest.approx([0.625, 0.125, 1.0, 0.755])


def test_units_are_rows_one_after_the_other():
    rows = torch.arange(24.0).view(1, 6, 4)
    assert torch.equal(scores.units(rows, 3)[0, 1], rows[0, 2:4])
