"""What leaks and what reaches irrelevant patterns: bounds against training, closed forms against simulation."""

import numpy as np
import pytest
import torch

from rankscope.core.streams import Split
from rankscope.measure.updates import alignment
from rankscope.papers.li2024.families import TASK as FAMILY
from rankscope.tasks.patterns import BoundedNoise, GaussianNoise, Patterns, batches, frames
from rankscope.theory.updates.leaks import attention_pull, query_bound, value_leak, value_self_bound
from rankscope.theory.updates.path import Mean
from tests.theory.updates.test_path import spectral, trained

MEAN = Mean(FAMILY.patterns, FAMILY.relevant_fraction, FAMILY.confusion_fraction)


@pytest.fixture(scope="module")
def course():
    return trained(learning_rate=0.5)


def updates(course, name):
    """μ'ᵀΔWμ at the end of the training."""
    last = max(course.at)
    frame = torch.stack(frames([FAMILY], [0])).float()
    return alignment(course.at[last][name] - course.at[0][name], frame)[0]


def test_irrelevant_queries_learn_no_more_than_their_share_of_the_path(course):
    noise = FAMILY.token_noise.level
    for step in (1, 5, 20, max(course.at)):
        path = sum(
            0.5
            * spectral(course.at[t], "w_k")
            * spectral(course.at[t], "w_v")
            * spectral(course.at[t], "w_o")
            for t in range(step)
        )
        frame = frames([FAMILY], [0])[0].float()
        change = (course.at[step]["w_q"] - course.at[0]["w_q"])[0] @ frame.T
        learned = float(change[:, 2:].norm(dim=0).mean())
        assert 0 < learned <= query_bound(MEAN, path, noise)
    far = Mean(100 * FAMILY.patterns, MEAN.relevant, MEAN.confusion)
    assert query_bound(far, 1.0) == pytest.approx(query_bound(MEAN, 1.0) / 100, rel=0.2), "of order 1/M"


@pytest.mark.parametrize(("relevant", "confusion"), [(0.4, 0.1), (0.2, 0.1), (0.6, 0.0)])
def test_the_pull_on_irrelevant_patterns_against_the_gradient_of_a_simulation(relevant, confusion):
    """E[∂(yF)/∂(W_KᵀW_Q)] at uniform attention by autograd, for a model that reads 2(μ_1 − μ_2)."""
    task = Patterns(
        dim=6, patterns=6, tokens=20, relevant_fraction=relevant, confusion_fraction=confusion,
        token_noise=GaussianNoise(level=0.0),
    )  # fmt: skip
    batch = next(batches([task], [0], split=Split.TRAIN, steps=1, batch=6000, dtype=torch.float64))
    x = batch.x[0] @ frames([task], [0])[0].T
    qk = torch.zeros(6, 6, dtype=torch.float64, requires_grad=True)
    reader = torch.tensor([2.0, -2, 0, 0, 0, 0], dtype=torch.float64)
    attended = torch.softmax((x @ qk @ x.mT).mT, dim=-1)
    (batch.labels[0] * (attended @ x @ reader).mean(-1)).mean().backward()
    pull = attention_pull(Mean(6, relevant, confusion), 2 * (relevant - confusion))
    grad = qk.grad.numpy()
    assert grad[:2, 2:].mean() == pytest.approx(pull.onto_relevant, rel=0.05, abs=1e-4)
    assert grad[2:, :2].mean() == pytest.approx(pull.onto_irrelevant, rel=0.05, abs=1e-4)


def test_the_signs_of_the_pull_are_those_of_training(course):
    query, key = updates(course, "w_q"), updates(course, "w_k")
    pull = attention_pull(MEAN, 1.0)
    assert pull.onto_relevant > 0 > pull.onto_irrelevant
    assert query[:2, 2:].min() > 0, "(8), W_Q: the right sign, of order 1/M"
    assert key[:2, 2:].max() < 0, "(8), W_K: the wrong sign"
    assert key[2:, :2].min() > 0, "(7), W_K: a leak that is there"
    assert query[2:, :2].max() < 0


def test_what_all_irrelevant_patterns_share_has_a_small_mean_on_itself():
    """The mean gradient in W_V with any two readings u₊ and u₋: ½(u₊x̄₊ᵀ − u₋x̄₋ᵀ)."""
    rng = np.random.default_rng(0)
    for patterns in (8, 30, 100):
        mean = Mean(patterns, 0.4, 0.1)
        plus, minus = mean.samples()
        one = np.r_[0.0, 0.0, np.ones(patterns - 2)]
        for up, down in [rng.standard_normal((2, patterns)), (one, -one)]:
            update = (np.outer(up, plus) - np.outer(down, minus)) / 2
            bound = value_self_bound(mean, float(np.linalg.norm((up - down) / 2)))
            assert abs(np.diag(update)[2:].mean()) <= bound * (1 + 1e-9)
        assert np.diag(update)[2:].mean() == pytest.approx(bound), "and the bound is reached"


def test_the_mean_on_itself_in_training_is_what_patterns_share(course):
    update = updates(course, "w_v")
    shared = update[:, 2:].mean(1)
    bound = value_self_bound(MEAN, float(shared.norm()) / MEAN.other)
    assert abs(float(torch.diagonal(update)[2:].mean())) <= bound


def test_the_leak_of_neurons_that_are_active_on_one_label_only(course):
    mean = Mean(30, 0.4, 0.1)
    plus, minus = mean.samples()
    update = (np.outer(3 * plus, plus) - np.outer(-3 * minus, minus)) / 2
    assert update[2:, :2] == pytest.approx(np.full((28, 2), value_leak(mean, 3.0)))
    assert float(updates(course, "w_v")[2:, :2].mean()) > 0


def test_noise_on_tokens_adds_little_to_what_queries_may_learn():
    noise = BoundedNoise(level=1 / FAMILY.patterns).level
    assert query_bound(MEAN, 1.0) < query_bound(MEAN, 1.0, noise) < 2 * query_bound(MEAN, 1.0)
