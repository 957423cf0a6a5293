"""The predicted spectrum against random matrices, the model's own gradient at one step, and whole trainings."""

import numpy as np
import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.ensembles.patterns import hinge_gradients
from rankscope.lab import Cell, Job
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.tasks.patterns import CHUNK, GaussianNoise, Patterns, batches, frames
from rankscope.theory.updates import phases as theory
from rankscope.theory.updates.directions import direction_gains
from rankscope.theory.updates.path import Mean
from rankscope.theory.updates.phases import PhaseSetting

BASE = PhaseSetting(
    mean=Mean(patterns=20, relevant=0.4, confusion=0.1), tokens=10, noise=0.1, batch=32, steps=300, learning_rate=1.0,
    init_scale=0.2, init_noise=0.1,
)  # fmt: skip


@pytest.mark.parametrize("ratio", [0.1, 0.5, 2.0])
def test_the_edge_of_a_cross_covariance_is_that_of_random_matrices(ratio):
    rng = np.random.default_rng(0)
    dim = 800
    samples = int(dim / ratio)
    product = rng.standard_normal((dim, samples)) @ rng.standard_normal((samples, dim)) / samples
    assert np.linalg.norm(product, 2) == pytest.approx(theory.cross_covariance_edge(ratio), rel=0.03)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, 3.0])
def test_the_edge_of_a_shifted_random_matrix(shift):
    rng = np.random.default_rng(1)
    dim = 400
    matrix = rng.standard_normal((dim, dim)) / dim**0.5 + shift * np.eye(dim)
    assert np.linalg.norm(matrix, 2) == pytest.approx(theory.shifted_edge(2.0, shift), rel=0.03)


def one_step(setting, samples, draws=8):
    """Singular values of ∂(yF)/∂W_K, over δ², by the model's own gradient, for a W_O that reads μ_1 − μ_2."""
    task = Patterns(
        dim=setting.mean.patterns, patterns=setting.mean.patterns, tokens=setting.tokens,
        relevant_fraction=setting.mean.relevant, confusion_fraction=setting.mean.confusion,
        token_noise=GaussianNoise(level=setting.noise),
    )  # fmt: skip
    tasks, seeds = [task] * draws, list(range(draws))
    drawn = list(
        batches(tasks, seeds, split=Split.TRAIN, steps=CHUNK, batch=samples // CHUNK, dtype=torch.float64)
    )
    x, labels = (torch.cat([getattr(batch, name) for batch in drawn], dim=1) for name in ("x", "labels"))
    small = 1e-3  # attention is uniform, and no margin is reached
    start = small * torch.eye(setting.mean.patterns, dtype=torch.float64).expand(draws, -1, -1)
    reading = torch.stack([frame[0] - frame[1] for frame in frames(tasks, seeds)]).double()
    weights = {
        "w_q": start, "w_k": start, "w_v": start, "w_o": torch.stack([reading, -reading], dim=1),
        "a": torch.tensor([1.0, -1.0], dtype=torch.float64).expand(draws, 2),
    }  # fmt: skip
    _, grads = hinge_gradients(weights, x, labels)
    return (torch.linalg.svdvals(grads["w_k"]) / small**2).mean(0)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2, 0.4])
@pytest.mark.parametrize(("tokens", "relevant"), [(10, 0.4), (20, 0.2), (20, 0.7)])
def test_one_step_has_two_directions_and_the_predicted_rest(noise, tokens, relevant):
    setting = BASE._replace(mean=Mean(20, relevant, 0.1), tokens=tokens, noise=noise)
    samples = 256
    sigma = one_step(setting, samples)
    gains = direction_gains(20, relevant, 0.1)
    apart = gains.apart + noise**2 * (1 - 1 / tokens) * (relevant - 0.1)
    rest = theory.rest_of_update(setting, samples)
    assert sigma[:2].tolist() == pytest.approx(
        sorted((gains.together, apart), reverse=True), rel=0.15, abs=rest
    )
    assert sigma[2].item() == pytest.approx(rest, rel=0.25)


def test_the_rest_falls_with_the_samples_to_what_few_tokens_leave():
    setting = BASE._replace(noise=0.0)
    many = theory.rest_of_update(setting, 1e9)
    assert many == pytest.approx(setting.mean.gap * setting.mean.other / setting.tokens, rel=1e-3)
    assert one_step(setting, 20_000, draws=2)[2].item() == pytest.approx(many, rel=0.2)


@pytest.mark.parametrize("noise", [0.025, 0.1, 0.2])
def test_whole_trainings_end_near_the_predicted_ratio(noise):
    task = TASK.replace(token_noise=GaussianNoise(level=noise))
    cells = [Cell("t", task, MODEL, TRAIN.replace(steps=60), seed, ()) for seed in range(4)]
    trained = OneLayerTrainer().train(cells, Job())
    sigma = torch.linalg.svdvals(trained.at[60]["w_k"] - trained.at[0]["w_k"])
    predicted = theory.update_spectrum(BASE._replace(noise=noise)).ratio
    assert (sigma[:, 1] / sigma[:, 2]).mean().item() == pytest.approx(predicted, rel=0.35)


def test_the_loss_is_gone_when_predicted():
    cells = [Cell("t", TASK, MODEL, TRAIN.replace(steps=40), seed, ()) for seed in range(4)]
    losses = OneLayerTrainer().train(cells, Job()).losses.mean(1)
    steps = theory.reading_growth(BASE).steps
    assert losses[steps // 2] > 0.8
    assert losses[2 * steps] < 0.1


@pytest.mark.parametrize(("tokens", "relevant", "confusion"), [(40, 0.2, 0.1), (16, 0.375, 0.25)])
def test_rank_two_ends_within_an_octave_of_the_border_off_the_map_too(tokens, relevant, confusion):
    """Settings that are on no map, the second with as many confusion tokens as the prediction is worst at (0.65 times)."""
    setting = BASE._replace(mean=Mean(20, relevant, confusion), tokens=tokens, batch=16, steps=200)
    border = theory.outvoting_noise(setting)
    assert border < theory.drowning_noise(setting, 10.0)
    ratios = []
    for noise in (border / 2, border * 2):
        task = TASK.replace(
            tokens=tokens, relevant_fraction=relevant, confusion_fraction=confusion,
            token_noise=GaussianNoise(level=noise),
        )  # fmt: skip
        model, train = MODEL.replace(hidden=60), TRAIN.replace(batch=16, steps=200)
        trained = OneLayerTrainer().train(
            [Cell("t", task, model, train, seed, ()) for seed in range(4)], Job()
        )
        sigma = torch.linalg.svdvals(trained.at[200]["w_k"] - trained.at[0]["w_k"])
        ratios.append((sigma[:, 1] / sigma[:, 2]).log().mean().exp().item())
    assert ratios[0] > 10 > ratios[1]


def test_the_noise_outvotes_one_sample_of_all_in_training():
    setting = BASE._replace(noise=0.3)
    border = theory.outvoting_noise(setting)
    count = setting.batch * setting.steps
    rng = np.random.default_rng(0)
    votes = (
        setting.mean.gap + border * rng.standard_normal((200, count, 2)).dot([1, -1]) / setting.tokens**0.5
    )
    assert (votes < 0).sum(1).mean() == pytest.approx(1.0, abs=0.25)


def test_more_samples_a_step_push_the_border_out():
    borders = [theory.drowning_noise(BASE._replace(batch=batch), 10.0) for batch in (8, 32, 128)]
    assert borders == sorted(borders)
    assert borders[2] > 1.2 * borders[0]
    assert theory.update_spectrum(BASE._replace(noise=borders[1])).ratio == pytest.approx(10.0)


def test_where_rank_two_fails_without_noise_the_border_is_zero():
    few = BASE._replace(mean=Mean(4, 0.5, 0.25), tokens=4)
    assert theory.update_spectrum(few._replace(noise=0.0)).ratio < 10
    assert theory.noise_border(few, 10.0) == 0.0
    no_irrelevant = BASE._replace(mean=Mean(20, 0.9, 0.1), tokens=20)
    assert theory.noise_border(no_irrelevant, 10.0) == pytest.approx(0.0, abs=1e-6)


def test_the_border_is_the_lower_of_two():
    for relevant in (0.2, 0.7):
        setting = BASE._replace(mean=Mean(20, relevant, 0.1))
        both = theory.drowning_noise(setting, 10.0), theory.outvoting_noise(setting)
        assert theory.noise_border(setting, 10.0) == min(both)


def test_a_single_irrelevant_pattern_leaves_nothing_but_noise():
    single = BASE._replace(mean=Mean(3, 0.4, 0.1), noise=0.0)
    assert theory.update_spectrum(single).ratio == np.inf
    assert one_step(single, 256)[2].item() == pytest.approx(0.0, abs=1e-6)


def test_impossible_settings_are_an_error():
    with pytest.raises(InputError, match="noise ≥ 0 and tokens ≥ 2"):
        theory.update_spectrum(BASE._replace(noise=-0.1))
