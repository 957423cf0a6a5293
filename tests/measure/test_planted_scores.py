"""Curves of added loss whose crossing is known exactly."""

import pytest
import torch

from rankscope.measure.scores import flat_part


def test_a_loss_at_the_limit_does_not_end_the_flat_part():
    added = torch.tensor([[0.25, 0.25, 0.5], [0.25, 0.0, 0.0], [0.0, 0.25, 0.75]])
    assert flat_part(added, (0.25, 0.5, 1.0), 0.25).tolist() == [0.5, 1.0, 0.5]


def test_fractions_are_as_precise_as_the_losses():
    flat = torch.zeros(1, 2, dtype=torch.float64)
    assert flat_part(flat, (0.1, 0.3), 0.02).item() == 0.3
    steep = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert flat_part(steep, (0.1, 0.3), 0.5).item() == pytest.approx(0.2, rel=1e-14)
    assert flat_part(flat.float(), (0.1, 0.3), 0.02).dtype is torch.float32
