"""Decoders trained under a curriculum and in pieces, and what is measured of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split
from rankscope.ensembles import decoder
from rankscope.lab import Job, Scale
from rankscope.papers.garg2022 import measurement
from rankscope.papers.garg2022.batches import DrawnThere, batch
from rankscope.papers.garg2022.experiments import PIECES, experiments
from rankscope.papers.garg2022.recipe import PAPER_RECIPE, Recipe
from rankscope.papers.garg2022.training import stages, train_group
from rankscope.tasks.in_context import Curriculum, Functions, InContext, Shift
from rankscope.training.precision import Precision

SMOKE = {one.name.partition("/")[2]: one for one in experiments(Scale.SMOKE)}
HEADS = SMOKE["heads"]
PIECE = Recipe(
    steps=30,
    batch=8,
    learning_rate=0.01,
    curriculum=Curriculum(dims=1, points=2, every=10),
    pieces=(12, 20, 30),
)


def in_piece(steps, train=PIECE):
    return [replace(cell, train=train.replace(steps=steps)) for cell in HEADS.cells()]


def same(ours, theirs):
    for name, tensor in ours[0].items():
        torch.testing.assert_close(tensor, theirs[0][name], rtol=0, atol=0)
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=0)


def test_the_papers_curriculum_has_its_stages_and_then_the_whole_task():
    task = InContext(input_dim=20, points=41)
    found = stages(task, PAPER_RECIPE)
    assert len(found) == 16
    assert [(stop, now.active, now.points) for stop, now in found[:2]] == [(2000, 5, 11), (4000, 6, 13)]
    assert found[-1] == (500_000, task)
    assert [stop for stop, _ in stages(task, PAPER_RECIPE.replace(steps=3000))] == [2000, 3000]


def test_pieces_one_after_the_other_are_the_whole_training(tmp_path):
    whole = train_group(in_piece(30, PIECE.replace(pieces=())), Job())
    ticks = []
    for steps in (12, 20, 30):
        state = tmp_path / f"{steps}.pt"
        found = train_group(in_piece(steps), Job(state=state, tick=lambda: ticks.append(None)))
        state.unlink(missing_ok=True)  # as the lab does with a finished group
    assert len(ticks) == 30, "no step was taken twice"
    same(found, whole)
    assert not list(tmp_path.iterdir()), "nothing goes on after the last piece"


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.FLOAT16])
def test_a_piece_goes_on_among_other_members(tmp_path, precision):
    train = PIECE.replace(precision=precision)
    first, second, third, *_ = in_piece(12, train)
    ticks = []
    whole = train_group(
        [replace(cell, train=train.replace(steps=20, pieces=())) for cell in (third, first)], Job()
    )
    train_group([first, second], Job(state=tmp_path / "a.pt"))
    train_group([third], Job(state=tmp_path / "b.pt"))
    next_ones = [replace(cell, train=train.replace(steps=20)) for cell in (third, first)]
    found = train_group(next_ones, Job(state=tmp_path / "c.pt", tick=lambda: ticks.append(None)))
    assert len(ticks) == 8, "of 20 steps 12 had been taken, in other stacks and another order"
    torch.testing.assert_close(found[1], whole[1], rtol=1e-3, atol=1e-4)
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, whole[0][name], rtol=1e-2, atol=1e-3)


def test_a_shorter_piece_that_ends_later_takes_nothing_away(tmp_path):
    ticks = []
    for steps, taken in ((20, 20), (12, 12), (30, 10)):
        state = tmp_path / f"{steps}.pt"
        train_group(in_piece(steps), Job(state=state, tick=lambda: ticks.append(None)))
        state.unlink(missing_ok=True)
        assert len(ticks) == taken
        ticks.clear()


def test_members_at_different_steps_begin_together_at_the_beginning(tmp_path):
    first, second, *_ = in_piece(12)
    train_group([first], Job(state=tmp_path / "a.pt"))
    train_group([replace(second, train=PIECE.replace(steps=20))], Job(state=tmp_path / "b.pt"))
    ticks = []
    both = [replace(cell, train=PIECE) for cell in (first, second)]
    train_group(both, Job(state=tmp_path / "c.pt", tick=lambda: ticks.append(None)))
    assert len(ticks) == 30


def test_a_piece_without_those_before_it_begins_at_the_beginning(tmp_path):
    whole = train_group(in_piece(30, PIECE.replace(pieces=())), Job())
    same(train_group(in_piece(30), Job(state=tmp_path / "a.pt")), whole)
    train_group(in_piece(20), Job(state=tmp_path / "b.pt"))
    first = train_group(in_piece(12), Job(state=tmp_path / "c.pt"))  # a later piece has been run already
    torch.testing.assert_close(first[1], whole[1][:12], rtol=0, atol=0)


def test_a_member_is_trained_as_if_it_were_alone():
    cells = HEADS.cells()
    together = train_group(cells, Job())
    for place in (0, len(cells) - 1):
        alone = train_group([cells[place]], Job())
        torch.testing.assert_close(together[1][:, place], alone[1][:, 0], rtol=1e-4, atol=1e-5)


def test_all_pieces_of_a_training_take_one_time_per_step():
    first, second = (HEADS.trainer.seconds_per_step(in_piece(steps), "cpu") for steps in (12, 20))
    assert 0 < first == second


def test_a_recipe_says_what_it_does_not_do():
    with pytest.raises(InputError, match="the rate is constant: leave warmup and epoch out"):
        PAPER_RECIPE.replace(warmup=0.1)
    with pytest.raises(InputError, match=r"steps=13 is no end of a piece: give one of \(12, 20, 30\)"):
        PIECE.replace(steps=13)


def test_the_papers_sizes():
    heads, apart, classes, _ = experiments(Scale.PAPER)
    standard = [cell for cell in heads.cells() if dict(cell.point)["decoder"].startswith("standard")]
    assert {(cell.model.heads, cell.model.rank) for cell in standard} == {
        (2**k, 256 // 2**k) for k in range(7)
    }
    assert {cell.train.steps for cell in standard} == set(PIECES)
    assert {cell.model.parameters for cell in standard} == {9_504_001}
    assert {cell.task.points for cell in classes.cells()} == {41, 101}
    assert all(cell.model.tokens == cell.task.tokens for cell in classes.cells())
    assert {cell.model.inner for cell in apart.cells()} == {1, 4, 16, 64, 256, 1024}


def test_losses_are_excesses_over_least_squares_at_each_stage():
    task = InContext(input_dim=4, points=8)
    train = Recipe(
        steps=20,
        batch=1,
        learning_rate=1.0,
        curriculum=Curriculum(dims=2, points=4, more_points=4, more_dims=2, every=10),
    )
    first, second = (1 + 0.5) / 4, (1 + 0.75 + 0.5 + 0.25) / 8
    found = measurement.excesses(
        task, train, np.array([2.0 * first] * 5 + [2.0] * 5 + [4 * second] * 5 + [4.0] * 5)
    )
    np.testing.assert_allclose(found, [0.0] * 5 + [1.0] * 5 + [0.0] * 5 + [1.0] * 5, atol=1e-12)
    tree = task.replace(functions=Functions.TREE)
    np.testing.assert_allclose(measurement.excesses(tree, train, np.full(20, 0.5)), 0.5)


def test_the_transition_is_where_spans_stay_under_one_half_and_nan_where_the_last_is_not():
    task, train = InContext(input_dim=4, points=8), Recipe(steps=500, batch=1, learning_rate=1.0)
    best = measurement.best_known(task)
    excess = np.where(np.arange(500) < 235, 0.9, 0.1)
    losses = 4 * (best + (1 - best) * excess)
    losses[3] = math.nan
    *trail, whole = measurement.way(task, train, losses)
    assert (
        whole["transition"] == 400
    )  # five windows have 0.9, 0.9, 0.66, 0.1, 0.1 by step 350, 0.53 in the mean
    assert whole["excess"] == pytest.approx(0.1)
    assert whole["left_out"] == 1
    assert trail[-1]["step"] == 500
    assert trail[0]["excess"] == pytest.approx(0.9)
    *_, never = measurement.way(task, train, np.full(500, 4.0))
    assert math.isnan(never["transition"])
    dip = np.where((np.arange(500) >= 200) & (np.arange(500) < 250), 0.1, 0.55)
    *_, once = measurement.way(task, train, 4 * (best + (1 - best) * dip))
    assert math.isnan(once["transition"]), "it did not stay there"
    *_, later = measurement.way(
        task, train, 4 * (best + (1 - best) * np.where(np.arange(500) < 250, dip, 0.1))
    )
    assert later["transition"] == 250  # 0.46 in the mean of the first five, and 0.1 from then on
    *_, close = measurement.way(task, train, 4 * (best + (1 - best) * np.where(dip < 0.5, 0.4, 0.55)))
    assert math.isnan(close["transition"]), "a single window under one half is no transition"


def test_what_was_learned_of_a_few_dimensions_and_lost_with_more_is_no_transition():
    task, course = InContext(input_dim=4, points=8), Curriculum(dims=2, points=4, every=1000, more_dims=2)
    train = Recipe(steps=3000, batch=1, learning_rate=1.0, curriculum=course)
    level = np.where(np.arange(3000) < 1000, 0.3, 0.8)
    zero, exact = (measurement.excesses(task, train, np.full(3000, loss)) for loss in (0.0, 1.0))
    losses = (level - zero) / (exact - zero)
    *_, whole = measurement.way(task, train, losses)
    assert whole["excess"] == pytest.approx(0.8)
    assert math.isnan(whole["transition"])
    assert whole["whole_task"] == 2000
    *_, short = measurement.way(task, train.replace(steps=1500), losses[:1500])
    assert math.isnan(short["whole_task"]), "it ended before"


def test_an_answer_of_zero_has_error_one_under_every_shift():
    cells = [replace(cell, train=cell.train.replace(batch=400)) for cell in HEADS.cells()[:1]]
    weights = decoder.init([cells[0].model], [0])
    weights = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    for shift in Shift:
        found = measurement.errors_by_examples(cells, weights, shift, "cpu")
        assert float(found.mean()) == pytest.approx(1, abs=0.1), shift


def test_a_heads_measured_ranks_are_those_of_planted_maps():
    cell = replace(HEADS.cells()[0], model=HEADS.model.replace(rank=4, heads=1, dim=4, layers=1))
    weights = decoder.init([cell.model], [0])
    weights["0.w_qkv"][0] = torch.cat(
        [torch.diag(torch.tensor([3.0, 3.0, 0.0, 0.0])), torch.eye(4), torch.eye(4)]
    )
    weights["w_read"][0] = torch.tensor([[1.0, 0], [0, 0], [0, 1.0], [0, 0]])  # inputs are channels 0 and 2
    row, layer = measurement._head_rows(cell, weights, 0)
    assert row["effective_rank"] == pytest.approx(2)
    assert row["energy_rank"] == 2
    assert row["input_rank"] == pytest.approx(1)
    assert layer["together"] == 1


def test_heads_that_compare_one_direction_each_compare_several_together():
    cell = replace(HEADS.cells()[0], model=HEADS.model.replace(rank=1, heads=4, dim=4, layers=1))
    weights = decoder.init([cell.model], [0])
    weights["0.w_qkv"][0] = torch.eye(4).repeat(3, 1)
    weights["w_read"][0] = torch.tensor([[1.0, 0], [0, 1.0], [0, 0], [0, 0]])
    *heads, layer = measurement._head_rows(cell, weights, 0)
    assert [row["energy_rank"] for row in heads] == [1, 1, 1, 1]
    assert layer["together"] == 2


def test_least_squares_stands_beside_a_decoder_on_the_same_prompts():
    cell = replace(HEADS.cells()[0], train=HEADS.train.replace(batch=400))
    found = measurement.least_squares_errors(cell)
    assert found[0] == pytest.approx(1, abs=0.1)
    assert found[2:] == pytest.approx([0, 0], abs=1e-6), "two dimensions are known by two examples"
    outputs = [
        batch([cell], cell.task, Split.TEST, place, "cpu")[1] for place in range(measurement.TEST_BATCHES)
    ]
    zero = float(torch.stack(outputs)[..., 0].square().mean()) / cell.task.variance
    assert found[0] == pytest.approx(zero, rel=1e-5), (
        "the very same prompts: without examples its answer is 0"
    )


def test_in_orthants_the_query_is_in_another_at_every_number_of_examples():
    cell = replace(HEADS.cells()[0], train=HEADS.train.replace(batch=400))
    weights = decoder.init([cell.model], [0])
    found = measurement.errors_by_examples([cell], weights, Shift.ORTHANTS, "cpu")
    shorter = replace(cell, task=cell.task.replace(points=3))
    own = measurement.errors_by_examples([shorter], weights, Shift.ORTHANTS, "cpu")
    torch.testing.assert_close(found[:, :3], own)
    assert found.shape == (1, cell.task.points)


def test_rows_have_every_measurement():
    cells = HEADS.cells()[:2]
    (first, _) = HEADS.trainer.run(cells, Job())
    kinds = [row["measurement"] for row in first.records]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "errors": 16,
        "loss": 1,
        "whole": 1,
        "head": 1,
        "layer": 1,
    }
    assert {row["step"] for row in first.records} == {30}


def test_known_algorithms_are_those_of_the_class():
    known = {}
    for cell in SMOKE["baselines"].cells()[::2]:
        (outcome,) = SMOKE["baselines"].trainer.run([cell], Job())
        rows = outcome.records
        known[cell.task.functions] = {row["algorithm"] for row in rows}
        assert {row["examples"] for row in rows} == set(range(cell.task.points))
        assert all(math.isfinite(row["error"]) for row in rows)
    always = {"least squares", "averaging", "3 nearest neighbours"}
    assert known == {
        Functions.LINEAR: always,
        Functions.SPARSE: always | {"lasso 0.1", "lasso 0.01"},
        Functions.NETWORK: always | {"network by Adam"},
        Functions.TREE: always | {"greedy tree", "greedy tree on signs"},
    }


def test_known_algorithms_answer_the_prompts_that_decoders_are_tested_on():
    decoders = {cell.seed: cell for cell in HEADS.cells()}
    compared = [cell for cell in SMOKE["baselines"].cells() if cell.task.functions is Functions.LINEAR]
    assert compared
    for cell in compared:
        (outcome,) = SMOKE["baselines"].trainer.run([cell], Job())
        found = [row["error"] for row in outcome.records if row["algorithm"] == "least squares"]
        assert found == pytest.approx(measurement.least_squares_errors(decoders[cell.seed]), abs=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("functions", Functions)
def test_prompts_drawn_on_the_gpu_are_of_the_task(functions):
    task = InContext(input_dim=6, points=12, functions=functions)
    cells = [replace(cell, train=cell.train.replace(batch=2000)) for cell in HEADS.cells()]
    tokens, outputs = DrawnThere(cells, task, "cuda")(torch.tensor([5], device="cuda"))
    plain, _ = batch(cells, task, Split.TRAIN, 5, "cpu")
    assert tokens.shape == plain.shape
    assert float(outputs.square().mean()) / task.variance == pytest.approx(1, abs=0.1)
    assert float(tokens[:, :, ::2].std()) == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(tokens[:, :, 1::2, 0], outputs)
    by_seed = {cell.seed: tokens[place] for place, cell in enumerate(cells)}
    assert all(torch.equal(tokens[place], by_seed[cell.seed]) for place, cell in enumerate(cells))
    assert not torch.equal(by_seed[0], by_seed[1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.FLOAT16])
def test_graphs_of_a_curriculum_in_pieces_learn_on_the_gpu(precision, tmp_path):
    course = Curriculum(dims=1, points=3, every=100)
    train = Recipe(
        steps=600, batch=64, learning_rate=0.003, curriculum=course, precision=precision, pieces=(150, 600)
    )
    base = HEADS.cells()[0]
    model = base.model.replace(dim=32, rank=8, heads=4, layers=2, tokens=10)
    task = base.task.replace(points=5)
    cells = [
        replace(base, task=task, model=model.replace(rank=32 // heads, heads=heads), train=train, seed=seed)
        for heads in (1, 4, 32)
        for seed in (0, 1)
    ]
    whole = train_group([replace(cell, train=train.replace(pieces=())) for cell in cells], Job("cuda"))
    for steps in (150, 600):
        found = train_group(
            [replace(cell, train=train.replace(steps=steps)) for cell in cells],
            Job("cuda", state=tmp_path / str(steps)),
        )
    assert found[1].shape == (600, 6)
    assert bool(found[1].isfinite().all())
    torch.testing.assert_close(found[1][:150], whole[1][:150], rtol=1e-2, atol=1e-2)
    assert torch.all(found[1][-100:].mean(0) < found[1][100:200].mean(0))
