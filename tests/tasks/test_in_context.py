"""Prompts, their curriculum and shifts, and the algorithms that a learner in context is compared with."""

import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.tasks import in_context_baselines as baselines
from rankscope.tasks.in_context import (
    SCALE,
    Curriculum,
    Functions,
    InContext,
    Shift,
    interleaved,
    normals_needed,
    prompts,
    sample,
)

SOURCE = (0, Split.TEST, 0)
TASK = InContext(input_dim=6, points=12)


@pytest.mark.parametrize("functions", Functions)
def test_outputs_have_the_variance_that_errors_are_divided_by(functions):
    task = TASK.replace(functions=functions)
    found = sample(task, 20_000, SOURCE)
    assert float(found.ys.square().mean()) / task.variance == pytest.approx(1, abs=0.05)
    assert abs(float(found.ys.mean())) < 0.1


def test_a_sparse_function_has_so_many_coordinates():
    drawn = sample(TASK.replace(functions=Functions.SPARSE), 50, SOURCE, torch.float64)
    w = torch.linalg.lstsq(drawn.xs, drawn.ys.unsqueeze(-1)).solution.squeeze(-1)
    assert torch.all((w.abs() > 1e-9).sum(-1) == 3)


def test_a_tree_answers_by_signs_and_has_no_more_values_than_leaves():
    task = InContext(input_dim=3, points=400, functions=Functions.TREE, depth=2)
    drawn = sample(task, 20, SOURCE)
    for xs, ys in zip(drawn.xs, drawn.ys, strict=True):
        assert len(ys.unique()) <= 4
        signs = (xs > 0).int() @ torch.tensor([1, 2, 4], dtype=torch.int32)
        assert all(len(ys[signs == code].unique()) == 1 for code in signs.unique())
    assert max(len(ys.unique()) for ys in drawn.ys) == 4


def test_noise_is_added_to_outputs():
    plain, noisy = (InContext(input_dim=6, points=12, noise=noise) for noise in (0.0, 0.5))
    numbers = torch.randn(4000, normals_needed(noisy), generator=torch.Generator().manual_seed(0))
    apart = prompts(noisy, numbers).ys - prompts(plain, numbers).ys
    assert float(apart.std()) == pytest.approx(0.5, rel=0.02)


def test_a_curriculum_grows_to_the_whole_task():
    task, course = InContext(input_dim=20, points=41), Curriculum()
    stages = [course.at(step, task) for step in (0, 1999, 2000, 30_000, 400_000)]
    assert [(stage.active, stage.points) for stage in stages] == [
        (5, 11),
        (5, 11),
        (6, 13),
        (None, 41),
        (None, 41),
    ]
    drawn = sample(course.at(2000, task), 8, SOURCE)
    assert torch.all(drawn.xs[..., 6:] == 0)
    assert torch.all(drawn.xs[..., :6] != 0)


def test_shifted_inputs():
    scaled = sample(TASK.replace(shift=Shift.SCALED), 4000, SOURCE).xs
    assert float(scaled.std()) == pytest.approx(SCALE, rel=0.02)
    skewed = sample(TASK.replace(shift=Shift.SKEWED, points=4000), 3, SOURCE).xs
    values = torch.linalg.eigvalsh(skewed.mT @ skewed / 4000).flip(-1)
    expected = torch.arange(1, 7) ** -2.0
    torch.testing.assert_close(values, (6 * expected / expected.sum()).expand(3, 6), rtol=0.15, atol=0.01)
    xs = sample(TASK.replace(shift=Shift.ORTHANTS), 200, SOURCE).xs
    assert torch.all(xs[:, :-1].sign() == xs[:, :1].sign())
    assert 0.4 < float((xs[:, -1].sign() == xs[:, 0].sign()).float().mean()) < 0.6


def test_a_prompt_is_examples_one_after_the_other():
    xs, ys = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[5.0, 6.0]])
    assert interleaved(xs, ys).tolist() == [[[1, 2], [5, 0], [3, 4], [6, 0]]]


def test_least_squares_has_the_error_of_what_it_cannot_know():
    drawn = sample(TASK, 20_000, SOURCE, torch.float64)
    errors = (baselines.least_squares(drawn.xs, drawn.ys) - drawn.ys).square().mean(0) / TASK.variance
    expected = torch.tensor([baselines.least_squares_error(examples, 6) for examples in range(12)]).double()
    torch.testing.assert_close(errors, expected, rtol=0.05, atol=1e-6)


def test_ridge_is_the_best_of_its_kind_and_tends_to_least_squares():
    drawn = sample(TASK.replace(noise=1.0), 4000, SOURCE, torch.float64)

    def error(noise):
        return float((baselines.ridge(drawn.xs, drawn.ys, noise) - drawn.ys).square().mean())

    assert error(1.0) < min(error(0.5), error(2.0), error(0.0))
    near, limit = baselines.ridge(drawn.xs, drawn.ys, 1e-5), baselines.least_squares(drawn.xs, drawn.ys)
    torch.testing.assert_close(near[:, :5], limit[:, :5], rtol=1e-3, atol=1e-3)


def test_the_lasso_meets_its_optimality_condition_and_beats_least_squares_on_sparse_functions():
    task = InContext(input_dim=10, points=8, functions=Functions.SPARSE, sparsity=1)
    drawn = sample(task, 300, SOURCE, torch.float64)
    sparse, dense = baselines.lasso(drawn.xs, drawn.ys, 0.01), baselines.least_squares(drawn.xs, drawn.ys)
    errors = [float((found - drawn.ys)[:, -1].square().mean()) for found in (sparse, dense)]
    assert errors[0] < errors[1] / 3
    w = baselines._lasso(drawn.xs, drawn.ys, 0.01)
    slope = (drawn.xs.mT @ (drawn.ys.unsqueeze(-1) - drawn.xs @ w.unsqueeze(-1))).squeeze(-1) / task.points
    assert float(slope.abs().max()) < 0.01 + 1e-4


def test_neighbours_and_averages_by_hand():
    xs = torch.tensor([[[0.0], [1.0], [2.0], [10.0], [1.5]]])
    ys = torch.tensor([[1.0, 2.0, 3.0, 100.0, 0.0]])
    assert baselines.nearest_neighbours(xs, ys)[0].tolist() == [0, 1, 1.5, 2, 2]
    assert float(baselines.averaging(xs, ys)[0, 4]) == pytest.approx(1.5 * (0 + 2 + 6 + 1000) / 4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="active=7 > input_dim=6: lower active"):
        TASK.replace(active=7)
    with pytest.raises(InputError, match="sparsity=3 > input_dim=2: lower sparsity"):
        InContext(input_dim=2, points=3, functions=Functions.SPARSE)
