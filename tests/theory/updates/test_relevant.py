import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.ensembles import patterns as ensemble
from rankscope.ensembles.patterns import Init, ManyClass
from rankscope.tasks.patterns import GaussianNoise, Patterns, batches, frames
from rankscope.theory.updates.directions import direction_gains
from rankscope.theory.updates.relevant import (
    Gains,
    Vote,
    attention_gains,
    mean_token_spread,
    readout_gains,
)

CASES = [(2, 2), (4, 4), (4, 2), (6, 3)]


def draw(patterns, classes, *, tokens, level, samples):
    task = Patterns(
        dim=12, patterns=12, relevant_patterns=patterns, tokens=tokens, relevant_fraction=0.4, confusion_fraction=0.1,
        token_noise=GaussianNoise(level=level),
    )  # fmt: skip
    batch = next(batches([task], [0], split=Split.TRAIN, steps=1, batch=samples, dtype=torch.float64))
    return batch, frames([task], [0])[0], Vote(12, patterns, classes, 0.4, 0.1)


@pytest.mark.parametrize(("relevant", "confusion"), [(0.1, 0.0), (0.4, 0.1), (0.3, 0.2)])
def test_two_patterns_in_two_classes_are_the_two_directions(relevant, confusion):
    gains, two = (
        attention_gains(Vote(20, 2, 2, relevant, confusion)),
        direction_gains(20, relevant, confusion),
    )
    assert (gains.together, gains.between) == pytest.approx(two)


@pytest.mark.parametrize(("patterns", "classes"), CASES)
def test_attention_gains_against_the_gradient_of_a_simulation(patterns, classes):
    """E[∂margin/∂(W_KᵀW_Q)] at uniform attention by autograd, for a readout that knows the classes."""
    batch, frame, vote = draw(patterns, classes, tokens=60, level=0.0, samples=1200)
    qk = torch.zeros(12, 12, dtype=torch.float64, requires_grad=True)
    x = batch.x[0] @ frame.T  # in the basis of the patterns
    mixed = (torch.softmax(x @ qk.T @ x.mT, dim=-1) @ x).mean(1)[:, :patterns]
    outputs = torch.stack([mixed[:, c::classes].sum(-1) for c in range(classes)], dim=-1)
    own = outputs.gather(-1, (batch.winner[0] % classes).unsqueeze(-1)).squeeze(-1)
    ((own * classes - outputs.sum(-1)) / (classes - 1)).mean().backward()
    measured = torch.linalg.svdvals(qk.grad)
    predicted = attention_gains(vote).spectrum(vote)
    assert measured[:patterns].tolist() == pytest.approx(predicted, rel=0.06)
    assert measured[patterns] < 0.1 * measured[0], "all else is that irrelevant tokens are drawn, not fixed"


@pytest.mark.parametrize(("patterns", "classes"), CASES)
def test_readout_gains_against_the_first_gradient_of_the_model(patterns, classes):
    batch, _, vote = draw(patterns, classes, tokens=20, level=0.1, samples=480)
    model = ManyClass(
        dim=12, rank=12, value_rank=12, hidden=2000, classes=classes, init=Init.THEORY, init_scale=0.05, init_noise=0.01
    )  # fmt: skip
    weights = ensemble.init([model], [0], tokens=20, dtype=torch.float64)
    _, grads = ensemble.hinge_gradients(weights, batch.x, batch.winner % classes)
    measured = torch.linalg.svdvals(grads["w_o"][0])
    gains = readout_gains(vote, mean_token_spread(vote, tokens=20, dim=12, noise=0.1))
    predicted = gains.spectrum(vote)
    shares = (measured / measured[0])[:patterns].tolist()
    assert shares == pytest.approx([value / predicted[0] for value in predicted], abs=0.06)
    assert measured[patterns] < 0.05 * measured[0]
    assert gains.rank(vote) == patterns


def test_mean_token_spread_against_a_simulation():
    batch, frame, vote = draw(4, 4, tokens=10, level=0.2, samples=4000)
    middle = frame[4:].sum(0) * vote.other + frame[:4].sum(0) * vote.loser
    mean = middle + vote.gap * frame[batch.winner[0]]
    found = (batch.x[0].mean(1) - mean).square().sum(-1).mean().item()
    assert found == pytest.approx(mean_token_spread(vote, tokens=10, dim=12, noise=0.2), rel=0.03)


def test_without_the_relu_only_the_differences_of_classes_move():
    """Neurons that are all active everywhere have E[p p'] = 1: then nothing is left but c − 1 directions."""
    vote = Vote(20, 6, 3, 0.4, 0.1)
    batch, _, _ = draw(6, 3, tokens=60, level=0.0, samples=1200)
    pull = torch.where(batch.winner[0] % 3 == torch.arange(3).unsqueeze(-1), 1.0, -0.5).double()
    moved = torch.linalg.svdvals(pull @ batch.x[0].mean(1) / 1200)
    assert (moved > 0.05 * moved[0]).sum() == 2
    assert readout_gains(vote, 0.07).rank(vote) == 6


def test_the_rank_leaves_out_what_is_negligible():
    vote = Vote(20, 6, 3, 0.4, 0.1)
    assert Gains(0.5, 1.0, 0.2).spectrum(vote) == [1.0, 1.0, 0.5, 0.2, 0.2, 0.2]
    assert Gains(0.5, 1.0, 0.2).rank(vote) == 6
    assert Gains(0.5, 1.0, 0.09).rank(vote) == 3
    assert Gains(0.05, 1.0, 0.09).rank(vote) == 2


@pytest.mark.parametrize(
    ("vote", "message"),
    [
        (Vote(20, 4, 5, 0.4, 0.1), "needs 2 ≤ classes ≤ relevant_patterns < patterns"),
        (Vote(20, 5, 2, 0.4, 0.1), "Choose a divisor of relevant_patterns"),
        (Vote(20, 4, 2, 0.2, 0.3), "0 ≤ confusion < relevant"),
    ],
)
def test_impossible_votes_are_errors(vote, message):
    for gains in (attention_gains, lambda case: readout_gains(case, 0.1)):
        with pytest.raises(InputError, match=message):
            gains(vote)
