"""What decides whether a deep encoder trains, and whether it counts as trained."""

from dataclasses import replace

import pytest
import torch

from rankscope.core.streams import stream
from rankscope.lab import Job, Scale
from rankscope.papers.amsel2024 import measurement
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.measurement import TEST_BATCHES, TRAINED_BY, records, right_answers
from rankscope.papers.amsel2024.training import start_of, train_group
from rankscope.tasks.neighbors import multiple_error, sample
from rankscope.training.schedule import warmup_cosine

CELL = experiments(Scale.SMOKE)[0].cells()[0]


@pytest.mark.parametrize(("layers", "power", "share"), [(1, 0.5, 1.0), (4, 0.5, 0.5), (4, 0.0, 1.0)])
def test_the_learning_rate_falls_with_the_root_of_the_layers(layers, power, share):
    """Adam's first step moves what has a gradient by the learning rate, whatever the gradient's size."""
    train = CELL.train.replace(depth_power=power)
    cell = replace(CELL, model=CELL.model.replace(layers=layers), train=train)
    before, (after, _) = start_of([cell], "cpu"), train_group([cell], Job(steps=1))
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    rate = train.learning_rate * warmup_cosine(0, train.steps, train.warmup)
    assert moved == pytest.approx(share * rate, rel=1e-3)


def test_an_encoder_has_trained_if_it_is_under_the_answer_without_attention_by_the_margin(monkeypatch):
    alone = multiple_error(CELL.task)
    errors = torch.tensor([alone - share * TRAINED_BY for share in (1.5, 0.5, -0.5, 1)], dtype=torch.float64)
    monkeypatch.setattr(measurement, "errors_on", lambda *_: (errors, errors))
    cells = [replace(CELL, seed=seed) for seed in range(4)]
    found = records(cells, start_of(cells, "cpu"), torch.ones(5, 4), "cpu")
    assert [record["trained"] for record in found] == [True, False, False, False]


def test_errors_are_measured_on_all_batches_of_the_test(monkeypatch):
    drawn, size = [], CELL.train.batch
    losses = torch.ones(5, 1)
    batch = measurement.batch
    monkeypatch.setattr(measurement, "batch", lambda *a, **k: drawn.append(batch(*a, **k)) or drawn[-1])
    records([CELL], start_of([CELL], "cpu"), losses, "cpu")
    assert len(drawn) == TEST_BATCHES
    for place, (points, answers) in enumerate(drawn):
        wanted = sample(CELL.task, size, stream(CELL.seed, "neighbors test", place))
        assert torch.equal(points[0], wanted.points)
        assert torch.equal(answers[0], wanted.answer)


def test_an_answer_is_the_other_point_that_the_output_points_to_most():
    points = torch.eye(3).expand(2, 1, 3, 3)
    answers = points[:, :, [1, 2, 0]]
    outputs = torch.stack([0.1 * answers[0], answers[1] + 5 * points[1]])
    assert right_answers(outputs, points, answers).tolist() == [1.0, 1.0], (
        "a token's own point does not compete"
    )
    outputs[1, 0, 0] = points[1, 0, 2]
    assert right_answers(outputs, points, answers).tolist() == pytest.approx([1.0, 2 / 3])
