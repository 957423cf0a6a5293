"""The neighbour tasks: laws of the points, exact and constant answers, what is refused."""

import math

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split, stream
from rankscope.tasks.neighbors import (
    Neighbors,
    Points,
    Queries,
    Target,
    exact_answer,
    mean_cosine,
    multiple_error,
    sample,
)

F64 = torch.float64
TASKS = [
    Neighbors(dim=5, tokens=4, target=Target.FARTHEST),
    *(
        Neighbors(dim=5, tokens=4, target=target, points=points, queries=Queries.SEPARATE)
        for target in Target
        for points in Points
    ),
]


def within(values, expected, errors=4.0):
    """The mean of independent values lies within `errors` standard errors of what is expected."""
    values = values.reshape(-1).double()
    return abs(values.mean().item() - expected) <= errors * values.std().item() / math.sqrt(values.numel())


@pytest.mark.parametrize("task", TASKS)
def test_exact_answer_is_the_one_a_search_finds(task):
    batch = sample(task, 20, stream(0, "test"), dtype=F64)
    for points, queries, answers in zip(batch.points, batch.queries, batch.answer, strict=True):
        for query, answer in zip(queries, answers, strict=True):
            best = (min if task.target is Target.NEAREST else max)(
                points, key=lambda point: (point - query).norm().item()
            )
            assert answer.equal(best)
    assert exact_answer(batch.points, batch.queries, task.target).equal(batch.answer)
    picked = torch.stack([points[index] for points, index in zip(batch.points, batch.index, strict=True)])
    assert picked.equal(batch.answer)


@pytest.mark.parametrize("task", TASKS)
def test_no_constant_beats_zero_and_zero_errs_by_one(task):
    batch = sample(task, 20_000, stream(1, "test"), dtype=F64)
    first = batch.answer[:, 0]
    torch.testing.assert_close(first.square().sum(-1), torch.ones(20_000, dtype=F64))
    for coordinate in first.unbind(-1):
        assert within(coordinate, 0.0)  # the mean answer is the best constant


@pytest.mark.parametrize("points", Points)
def test_points_follow_their_law(points):
    task = Neighbors(dim=4, tokens=4, target=Target.NEAREST, points=points, queries=Queries.SEPARATE)
    batch = sample(task, 20_000, stream(2, "test"), dtype=F64)
    torch.testing.assert_close(batch.points.norm(dim=-1), torch.ones(20_000, 4, dtype=F64))
    for token in range(4):
        for coordinate in range(4):
            assert within(batch.points[:, token, coordinate], 0.0)
            assert within(batch.points[:, token, coordinate].square(), 1 / 4)
    gram = batch.points @ batch.points.mT
    if points is Points.ORTHOGONAL:
        torch.testing.assert_close(gram, torch.eye(4, dtype=F64).expand_as(gram))
        assert within((batch.points[:, 0, 0] < 0).double(), 0.5)  # QR alone would give one sign always
    else:
        assert within(gram[:, 0, 1].square(), 1 / 4)


def test_a_step_of_a_stream_is_always_the_same_batch():
    task = TASKS[0]
    again = sample(task, 3, (7, Split.TRAIN, 2))
    assert sample(task, 3, (7, Split.TRAIN, 2)).points.equal(again.points)
    assert not sample(task, 3, (7, Split.TRAIN, 3)).points.equal(again.points)
    assert not sample(task, 3, (8, Split.TRAIN, 2)).points.equal(again.points)
    assert not sample(task, 3, (7, Split.TEST, 2)).points.equal(again.points)
    assert again.points.dtype == torch.float32
    with pytest.raises(InputError, match="step=-1: steps of a stream count from 0"):
        sample(task, 3, (7, Split.TRAIN, -1))


def test_self_queries_are_the_points():
    batch = sample(TASKS[0], 3, (0, Split.TRAIN, 0))
    assert batch.queries is batch.points


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"points": Points.ORTHOGONAL, "tokens": 6, "queries": Queries.SEPARATE}, "Lower tokens to ≤ 5"),
        ({"points": Points.ORTHOGONAL}, "orthogonal points are all equally far from each other"),
        ({"target": Target.NEAREST}, "every point is its own nearest neighbour"),
        ({"tokens": 1}, "Neighbors.tokens"),
        ({"token": 3}, "Did you mean 'tokens'?"),
        ({"target": "farthest"}, "Neighbors.target"),
    ],
)
def test_tasks_without_one_answer_are_refused(fields, message):
    with pytest.raises(InputError) as error:
        Neighbors(**({"dim": 5, "tokens": 4, "target": Target.FARTHEST} | fields))
    assert message in str(error.value)


@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize(("dim", "tokens", "queries"), [(2, 2, Queries.SEPARATE), (8, 5, Queries.SEPARATE)])
def test_the_mean_cosine_of_query_and_answer(target, dim, tokens, queries):
    task = Neighbors(dim=dim, tokens=tokens, target=target, queries=queries)
    _close_to_sampled(task)


def test_a_point_does_not_compete_with_itself():
    _close_to_sampled(Neighbors(dim=6, tokens=4, target=Target.FARTHEST))


def _close_to_sampled(task):
    batch = sample(task, 40_000, (0, Split.TRAIN, 0), dtype=torch.float64)
    cosines = (batch.queries * batch.answer).sum(-1).mean(1)
    assert abs(mean_cosine(task) - float(cosines.mean())) < 4 * float(cosines.std()) / 200
    best = (mean_cosine(task) * batch.queries - batch.answer).square().sum(-1).mean()
    assert multiple_error(task) == pytest.approx(float(best), abs=0.02)


def test_the_mean_cosine_is_known_for_independent_points_only():
    task = Neighbors(
        dim=4, tokens=2, target=Target.NEAREST, points=Points.ORTHOGONAL, queries=Queries.SEPARATE
    )
    with pytest.raises(InputError, match=r"knows independent points only.*take Points.IID"):
        mean_cosine(task)
