"""Bounds on the path of a training against closed forms, integration, and trainings that they may never miss."""

import math

import pytest
import torch

from rankscope.core import InputError
from rankscope.ensembles import patterns as one_layer
from rankscope.lab import Experiment, Grid, Job
from rankscope.papers.li2024.families import MODEL, TASK, TRAIN
from rankscope.papers.li2024.trainer import ConvergenceTrainer
from rankscope.tasks.patterns import BoundedNoise
from rankscope.theory.updates.path import (
    Initial,
    Mean,
    Norms,
    flow_path,
    least_path,
    output_bound,
    update_bound,
)


def spectral(weights, name, member=0):
    return float(torch.linalg.matrix_norm(weights[name][member], ord=2))


def norms(weights, member=0):
    return Norms(*(spectral(weights, name, member) for name in ("w_v", "w_o", "w_q")))


class EveryStep(ConvergenceTrainer):
    """Keeps the weights of every step."""

    def kept_steps(self):
        return range(5000)


def trained(seed=0, steps=400, model=None, **train):
    cell = Experiment(
        "t",
        TASK,
        MODEL.replace(**(model or {})),
        TRAIN.replace(steps=steps, **train),
        Grid(seed=(seed,)),
        EveryStep(),
    ).cells()
    return EveryStep().train(cell, Job())


@pytest.mark.parametrize("start", [Norms(0.2, 0.25), Norms(0.05, 1.3), Norms(0.4, 0.4)])
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.5])
def test_the_least_path_is_where_the_bound_on_the_output_reaches_the_margin(start, loss):
    path = least_path(start, loss)
    assert output_bound(start, path) == pytest.approx(1 - loss)
    v, o, integral, step = start.value, start.output, 0.0, path / 20_000
    for _ in range(20_000):  # v' = o, o' = v
        middle = v + o * step / 2, o + v * step / 2
        integral += middle[0] * middle[1] * step
        v, o = v + middle[1] * step, o + middle[0] * step
    assert v * o == pytest.approx(1 - loss, rel=1e-4)
    bound = update_bound(start._replace(query=0.2), path)
    assert bound == pytest.approx(0.2 * math.expm1(integral), rel=1e-4)


def test_a_start_beyond_the_margin_needs_no_path_and_no_start_has_none():
    assert least_path(Norms(2.0, 2.0)) == 0.0
    assert update_bound(Norms(0.2, 0.2, 0.2), 30.0) == math.inf
    with pytest.raises(InputError, match="needs a start that is not zero and 0 ≤ loss < 1"):
        least_path(Norms(0.0, 0.0))


@pytest.mark.parametrize("rate", [2.0, 0.5, 0.1])
@pytest.mark.parametrize("model", [{}, {"init_noise": 0.1}, {"init_scale": 0.05}])
def test_no_training_at_any_rate_beats_the_least_path(rate, model):
    course = trained(model=model, learning_rate=rate, steps=900)
    steps = len(course.losses) - 1
    assert course.losses[-1] < 0.05
    path = least_path(norms(course.at[0]), 0.05)
    assert rate * steps >= path
    assert path > 0.2, "a bound that says something"


def test_no_output_and_no_update_on_the_way_is_beyond_its_bound():
    course = trained(learning_rate=0.5)
    start = norms(course.at[0])
    draw = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(
        torch.randn(1, 200, 10, TASK.dim, generator=draw), dim=-1
    )  # whatever the data
    for step in (1, 3, 5, 8):
        weights, path = course.at[step], 0.5 * step
        assert float(one_layer.forward(weights, x).abs().max()) <= output_bound(start, path)
        for name in ("w_q", "w_k"):
            update = float(torch.linalg.matrix_norm(weights[name][0] - course.at[0][name][0], ord=2))
            assert update <= update_bound(start, path)


@pytest.mark.parametrize(
    ("task", "model"),
    [({}, {}), ({"confusion_fraction": 0.3}, {}), ({}, {"init_scale": 0.05}), ({}, {"init_noise": 0.06})],
)
def test_gradient_flow_on_two_mean_samples_tells_the_steps_of_training(task, model):
    task = TASK.replace(tokens=20, token_noise=BoundedNoise(level=0.0), **task)
    model = MODEL.replace(**model)
    group = Experiment(
        "t", task, model, TRAIN.replace(steps=900), Grid(seed=range(4)), ConvergenceTrainer()
    ).cells()
    outcomes = ConvergenceTrainer().run(group, Job())
    measured = sum(outcome.records[0]["path"] for outcome in outcomes) / len(outcomes)
    mean = Mean(task.patterns, task.relevant_fraction, task.confusion_fraction)
    predicted = flow_path(mean, Initial(model.hidden, model.init_scale, model.init_noise))
    assert measured == pytest.approx(predicted, rel=0.2)
