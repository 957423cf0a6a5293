import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.tasks.patterns import GaussianNoise, Patterns, batches, frames
from rankscope.theory.updates.directions import direction_gains


@pytest.mark.parametrize(("relevant", "confusion"), [(0.1, 0.0), (0.4, 0.1), (0.3, 0.2), (0.7, 0.0)])
def test_direction_gains_against_the_gradient_of_a_simulation(relevant, confusion):
    """E[∂(yF)/∂(W_KᵀW_Q)] at uniform attention by autograd, for a model that reads μ_1 − μ_2."""
    task = Patterns(
        dim=8,
        patterns=8,
        tokens=20,
        relevant_fraction=relevant,
        confusion_fraction=confusion,
        token_noise=GaussianNoise(level=0.0),
    )
    batch = next(batches([task], [0], split=Split.TRAIN, steps=1, batch=4000, dtype=torch.float64))
    frame = frames([task], [0])[0]
    qk = torch.zeros(8, 8, dtype=torch.float64, requires_grad=True)
    x = batch.x[0] @ frame.T  # in the basis of the patterns
    attention = torch.softmax(x @ qk.T @ x.mT, dim=-1)
    reader = torch.zeros(8, dtype=torch.float64)
    reader[0], reader[1] = 1.0, -1.0
    (batch.labels[0] * (attention @ x @ reader).mean(-1)).mean().backward()
    measured = torch.linalg.svdvals(qk.grad)
    predicted = direction_gains(8, relevant, confusion)
    assert measured[:2].tolist() == pytest.approx(sorted(predicted, reverse=True), rel=0.03, abs=3e-4)
    assert measured[2] < 0.06 * measured[0], "all else is sampling noise"


def test_few_relevant_tokens_favour_one_direction_many_the_other():
    ratios = [
        g.together / g.apart for g in (direction_gains(20, share, 0.05) for share in (0.1, 0.2, 0.4, 0.6))
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 1.5
    assert ratios[-1] < 0.8


def test_impossible_fractions_are_an_error():
    with pytest.raises(InputError, match="0 ≤ confusion < relevant"):
        direction_gains(20, 0.2, 0.3)
