from dataclasses import replace

import pytest
import torch

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import Init, OneLayer
from rankscope.lab import Experiment, Grid, Job
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.tasks.patterns import BoundedNoise, Patterns, batches
from rankscope.training.sgd import Sgd

TASK = Patterns(tokens=6, relevant_fraction=0.5, confusion_fraction=0.17)
TRAINER = OneLayerTrainer()
TRAIN = Sgd(steps=40, batch=8, learning_rate=0.5)


def cells(**grid):
    return Experiment(
        "test",
        TASK,
        OneLayer(hidden=30),
        TRAIN,
        Grid(**grid),
        TRAINER,
    ).cells()


def plain_training(cell):
    """The slow twin: one model, autograd, torch.optim.SGD."""
    weights = patterns.init([cell.model], [cell.seed], tokens=cell.task.tokens)
    leaves = {name: weights[name].requires_grad_() for name in patterns.TRAINED}
    optimizer = torch.optim.SGD(leaves.values(), lr=cell.train.learning_rate)
    data = batches(
        [cell.task], [cell.seed], split=Split.TRAIN, steps=cell.train.steps, batch=cell.train.batch
    )
    for batch in data:
        optimizer.zero_grad()
        patterns.hinge(patterns.forward(weights, batch.x), batch.labels).mean().backward()
        optimizer.step()
    return {name: tensor.detach()[0] for name, tensor in weights.items()}


def test_members_with_other_numbers_train_together():
    mixed = cells(
        seed=(0, 1), learning_rate=(0.1, 0.9), init_scale=(0.1, 0.3), relevant_fraction=(0.34, 0.67)
    )
    assert len({TRAINER.shape_key(cell) for cell in mixed}) == 1
    assert len({TRAINER.shape_key(cell) for cell in cells(seed=(0,), tokens=(6, 12))}) == 2


def test_a_member_equals_its_solo_run_and_plain_pytorch():
    mixed = cells(seed=(0, 1), learning_rate=(0.1, 0.9), init_scale=(0.1, 0.3))
    stacked = TRAINER.train(mixed, Job()).at[40]
    for place in (0, 3, 6):
        solo = TRAINER.train(mixed[place : place + 1], Job()).at[40]
        plain = plain_training(mixed[place])
        for name in patterns.TRAINED:
            assert torch.allclose(stacked[name][place], solo[name][0], atol=1e-5), name
            assert torch.allclose(stacked[name][place], plain[name], atol=1e-5), name
    assert not torch.allclose(stacked["w_v"][0], stacked["w_v"][3], atol=1e-3)


def test_the_trajectory_keeps_the_start_the_chosen_steps_and_the_end():
    group = cells(seed=(0, 1))
    trajectory = TRAINER.train(group, Job())
    assert sorted(trajectory.at) == [0, 1, 10, 20, 30, 40]
    assert trajectory.losses.shape == (40, 2)
    start = patterns.init([OneLayer(hidden=30)] * 2, [0, 1], tokens=group[0].task.tokens)
    for name, tensor in trajectory.at[0].items():
        assert torch.equal(tensor, start[name])
    assert torch.equal(trajectory.at[40]["a"], start["a"])
    shorter = TRAINER.train(cells(seed=(0, 1), steps=(10,)), Job())
    assert torch.allclose(trajectory.at[10]["w_o"], shorter.at[10]["w_o"])


def test_training_on_a_fixed_set_differs_from_fresh_batches():
    fresh, fixed = (TRAINER.train(cells(seed=(0,), samples=(n,)), Job()) for n in (None, 16))
    assert fixed.losses[-1] != fresh.losses[-1]


@pytest.mark.parametrize(("samples", "until"), [(None, None), (16, None), (None, 0.7)])
def test_a_training_that_was_stopped_goes_on_and_ends_the_same(tmp_path, samples, until):
    train = TRAIN.replace(samples=samples, until=until)
    some = [replace(cell, train=train) for cell in cells(seed=(0, 1, 2))]
    whole = TRAINER.train(some, Job())
    assert len(whole.losses) > 25
    assert until is None or (whole.losses[:25] < until).any(), "a member stays before the stop"
    told, state = [], tmp_path / "group.pt"

    def stopped():
        told.append(1)
        if len(told) == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TRAINER.train(some, Job(state=state, tick=stopped))
    assert state.exists()
    told.clear()
    resumed = TRAINER.train(some, Job(state=state, tick=lambda: told.append(1)))
    assert len(told) in (len(whole.losses), len(whole.losses) - 1), "what was done before counts as progress"
    assert torch.equal(resumed.losses, whole.losses)
    assert resumed.at.keys() == whole.at.keys()
    for step, weights in whole.at.items():
        assert all(torch.equal(resumed.at[step][name], weights[name]) for name in weights), step


def test_a_member_stays_where_its_loss_is_below_until_and_training_ends_when_all_stay():
    task = TASK.replace(token_noise=BoundedNoise(level=0.01))
    model = OneLayer(hidden=30, init=Init.THEORY, init_scale=0.2)
    train = TRAIN.replace(steps=200, batch=32)

    def trained(until, rates):
        group = Experiment(
            "t", task, model, train.replace(until=until), Grid(seed=(0,), learning_rate=rates), TRAINER
        )
        return TRAINER.train(group.cells(), Job())

    whole = trained(None, (1.0, 0.5)).losses
    first = [int((whole[:, member] < 0.5).nonzero()[0]) for member in (0, 1)]
    stopped = trained(0.5, (1.0, 0.5))
    assert first[0] < first[1] == len(stopped.losses) - 1, "the last batch is the one whose loss is below"
    alone = trained(0.5, (1.0,))
    assert len(alone.losses) == first[0] + 1
    for name in patterns.TRAINED:
        assert torch.allclose(
            stopped.at[len(stopped.losses)][name][0], alone.at[len(alone.losses)][name][0], atol=1e-6
        )
    assert torch.allclose(stopped.losses[: first[0] + 1], whole[: first[0] + 1][:, :2], atol=1e-5)
