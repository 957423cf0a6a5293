import pytest
import torch

from rankscope.core import InputError
from rankscope.papers.li2024.theory import direction_gains
from rankscope.tasks.patterns import GaussianNoise, Patterns, batches, frames


@pytest.mark.parametrize(("relevant", "confusion"), [(0.1, 0.0), (0.4, 0.1), (0.3, 0.2), (0.7, 0.0)])
def test_direction_gains_against_the_gradient_of_a_simulation(relevant, confusion):
    """E[∂(yF)/∂S] at uniform attention by autograd, for a model that reads μ_1 − μ_2."""
    task = Patterns(
        dim=8,
        patterns=8,
        tokens=20,
        relevant_fraction=relevant,
        confusion_fraction=confusion,
        noise=GaussianNoise(level=0.0),
    )
    batch = next(batches([task], [0], split="train", steps=1, batch=4000, dtype=torch.float64))
    frame = frames([task], [0])[0]
    qk = torch.zeros(8, 8, dtype=torch.float64, requires_grad=True)
    x = batch.x[0] @ frame.T  # in the basis of the patterns
    attention = torch.softmax(x @ qk.T @ x.mT, dim=-1)
    reader = torch.zeros(8, dtype=torch.float64)
    reader[0], reader[1] = 1.0, -1.0
    (batch.labels[0] * (attention @ x @ reader).mean(-1)).mean().backward()
    pull = qk.grad[:2]  # rows: the keys μ_1, μ_2
    together = (pull[0] + pull[1]).norm() / 2**0.5
    apart = (pull[0] - pull[1]).norm() / 2**0.5
    predicted = direction_gains(8, relevant, confusion)
    assert together.item() == pytest.approx(predicted.together, rel=0.05, abs=1e-3)
    assert apart.item() == pytest.approx(predicted.apart, rel=0.05, abs=1e-3)


def test_few_relevant_tokens_leave_one_direction_many_leave_two():
    ratios = [
        g.together / g.apart
        for g in (direction_gains(20, share, 0.0) for share in (0.05, 0.1, 0.2, 0.4, 0.6))
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 5
    assert ratios[-1] < 1.1


def test_impossible_fractions_are_an_error():
    with pytest.raises(InputError, match="0 ≤ confusion < relevant"):
        direction_gains(20, 0.2, 0.3)
