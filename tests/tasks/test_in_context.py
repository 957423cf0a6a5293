"""Prompts, their curriculum and shifts, and the algorithms that a learner in context is compared with."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.tasks import in_context_baselines as baselines
from rankscope.tasks import in_context_fits as fits
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
    assert interleaved(xs, ys).tolist() == [[[1, 2], [5, 0], [3, 4]]]


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


def test_the_lasso_is_scikit_learns_with_few_examples_of_many_coordinates():
    linear = pytest.importorskip("sklearn.linear_model")
    drawn = sample(InContext(input_dim=20, points=6, functions=Functions.SPARSE), 20, SOURCE, torch.float64)
    xs, ys = drawn.xs[:, :5], drawn.ys[:, :5]
    theirs = [
        linear.Lasso(0.01, fit_intercept=False, max_iter=100_000, tol=1e-8).fit(*one).coef_
        for one in zip(xs.numpy(), ys.numpy(), strict=True)
    ]

    def cost(w):
        left = ys - (xs @ w.unsqueeze(-1)).squeeze(-1)
        return left.square().mean(1) / 2 + 0.01 * w.abs().sum(1)

    best = cost(torch.tensor(np.array(theirs)))
    assert float((cost(baselines._lasso(xs, ys, 0.01)) / best).max()) < 1.01


def test_the_coordinates_of_a_sparse_function_are_active_ones():
    task = InContext(input_dim=20, points=4, functions=Functions.SPARSE, active=5)
    drawn = sample(task, 4000, SOURCE)
    assert torch.all(drawn.ys != 0), "no function has all of its coordinates among those that are zero"
    assert float(drawn.ys.square().mean()) == pytest.approx(3, rel=0.1)
    narrow = sample(task.replace(active=2), 4000, SOURCE).ys
    assert float(narrow.square().mean()) == pytest.approx(2, rel=0.1)


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


def grown_twin(xs, ys, query, depth):
    """CART in plain words: the best cut of all, then the query's side."""
    if len(set(ys)) == 1 or depth == 0:
        return sum(ys) / len(ys)
    cuts = []
    for axis in range(len(query)):
        values = sorted({x[axis] for x in xs})
        for low, high in pairwise(values):
            sides = [
                [y for x, y in zip(xs, ys, strict=True) if (x[axis] > low) == above]
                for above in (False, True)
            ]
            left = sum(sum((y - sum(side) / len(side)) ** 2 for y in side) for side in sides)
            cuts.append((left, axis, (low + high) / 2))
    if not cuts:
        return sum(ys) / len(ys)
    least = min(left for left, _, _ in cuts)
    _, axis, threshold = next(cut for cut in cuts if cut[0] <= least + 1e-12)
    kept = [
        (x, y) for x, y in zip(xs, ys, strict=True) if (x[axis] <= threshold) == (query[axis] <= threshold)
    ]
    return grown_twin(*map(list, zip(*kept, strict=True)), query, depth - 1)


@pytest.mark.parametrize("depth", [None, 2])
def test_a_greedy_tree_is_its_slow_twin(depth):
    drawn = sample(InContext(input_dim=1, points=14), 30, SOURCE, torch.float64)
    wide = sample(InContext(input_dim=3, points=40), 4, SOURCE, torch.float64)
    for found, first in ((drawn, 0), (wide, 25 if depth else 40)):
        answers = fits.greedy_tree(found.xs, found.ys, depth)
        assert torch.all(answers[:, 0] == 0)
        for prompt, (xs, ys) in enumerate(zip(found.xs.tolist(), found.ys.tolist(), strict=True)):
            for i in range(max(1, first), len(xs)):
                twin = grown_twin(xs[:i], ys[:i], xs[i], 99 if depth is None else depth)
                assert float(answers[prompt, i]) == pytest.approx(twin, abs=1e-9)


def test_a_greedy_tree_is_scikit_learns():
    tree = pytest.importorskip("sklearn.tree")
    drawn = sample(InContext(input_dim=5, points=60), 8, SOURCE, torch.float64)
    answers = fits.greedy_tree(drawn.xs, drawn.ys, 2)[:, -1]
    theirs = [
        float(tree.DecisionTreeRegressor(max_depth=2).fit(xs[:-1], ys[:-1]).predict(xs[-1:])[0])
        for xs, ys in zip(drawn.xs.numpy(), drawn.ys.numpy(), strict=True)
    ]
    assert answers.tolist() == pytest.approx(theirs)


def test_a_greedy_tree_learns_a_tree_once_it_has_seen_every_sign_and_one_of_signs_knows_it_then():
    task = InContext(input_dim=3, points=120, functions=Functions.TREE, depth=2)
    drawn = sample(task, 50, SOURCE, torch.float64)
    on_signs = fits.greedy_tree(drawn.xs.sign(), drawn.ys)[:, -1]
    torch.testing.assert_close(on_signs, drawn.ys[:, -1])
    plain = fits.greedy_tree(drawn.xs, drawn.ys)
    errors = (plain - drawn.ys).square().mean(0) / task.variance
    assert float(errors[-20:].mean()) < 0.15 < 0.5 < float(errors[1:4].mean())


def test_networks_trained_side_by_side_are_those_trained_alone():
    task = InContext(input_dim=3, points=6, functions=Functions.NETWORK, hidden_neurons=4)
    drawn = sample(task, 2, SOURCE, torch.float64)
    answers = fits.network(drawn.xs, drawn.ys, 4, torch.Generator().manual_seed(5))
    draw = torch.Generator().manual_seed(5)
    into, out = fits.start((2, 5, 4, 4), 3, draw, drawn.xs), fits.start((2, 5, 5), 4, draw, drawn.xs)
    assert torch.all(answers[:, 0] == 0)
    for prompt in range(2):
        for examples in range(1, 6):
            layers = torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)
            alone = torch.nn.Sequential(*layers).double()
            own_in, own_out = into[prompt, examples - 1], out[prompt, examples - 1]
            with torch.no_grad():
                alone[0].weight.copy_(own_in[:, :3])
                alone[0].bias.copy_(own_in[:, 3])
                alone[2].weight.copy_(own_out[None, :4])
                alone[2].bias.copy_(own_out[4:])
            optimizer = torch.optim.Adam(alone.parameters(), lr=fits.RATE)
            for _ in range(fits.STEPS):
                optimizer.zero_grad()
                left = alone(drawn.xs[prompt, :examples]).squeeze(-1) - drawn.ys[prompt, :examples]
                left.square().mean().backward()
                optimizer.step()
            assert float(answers[prompt, examples]) == pytest.approx(alone(drawn.xs[prompt, examples]).item())


def test_a_network_learns_networks_better_than_lines_do():
    task = InContext(input_dim=4, points=60, functions=Functions.NETWORK, hidden_neurons=20)
    drawn = sample(task, 20, SOURCE)
    learners = fits.network(drawn.xs, drawn.ys, 50, torch.Generator().manual_seed(0))
    lines, near = (one(drawn.xs, drawn.ys) for one in (baselines.least_squares, baselines.nearest_neighbours))
    errors = [
        float((one - drawn.ys)[:, -20:].square().mean() / task.variance) for one in (learners, lines, near)
    ]
    assert errors[0] < min(errors[1:])
