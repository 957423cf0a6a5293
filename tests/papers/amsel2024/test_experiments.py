"""The experiments have the talk's sizes, train as one stack what they would train alone, and go on when killed."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from rankscope.ensembles import head_sum
from rankscope.ensembles.encoder import Program, encode, leaves_of
from rankscope.kernels import usable
from rankscope.kernels.small_attention import Way
from rankscope.lab import Job, Scale
from rankscope.papers.amsel2024 import training, two_points
from rankscope.papers.amsel2024.batches import DrawnThere
from rankscope.papers.amsel2024.experiments import FIG1, OUR_POSITIONS, experiments
from rankscope.papers.amsel2024.figure_1 import UNTRAINED, untrained
from rankscope.papers.amsel2024.figures import _lines, figures
from rankscope.papers.amsel2024.measurement import best_epoch, identity_fit, records
from rankscope.papers.amsel2024.published import published
from rankscope.papers.amsel2024.recipe import APART, PAPER_RECIPE, Start
from rankscope.papers.amsel2024.trainer import EncoderTrainer
from rankscope.papers.amsel2024.training import start_of, train_group
from rankscope.theory.heads.rank_one import linear_error
from rankscope.training.adamw import adamw
from rankscope.training.precision import Precision
from rankscope.training.state import ResumeState
from tests.papers.laboratory import finish

TRAINER = EncoderTrainer()
SMOKE = {experiment.name.removeprefix("amsel2024/"): experiment for experiment in experiments(Scale.SMOKE)}


def stack(count=4):
    """Cells of two ranks that train together."""
    cells = SMOKE["figure1"].cells()
    like = [cell for cell in cells if TRAINER.shape_key(cell) == TRAINER.shape_key(cells[0])]
    assert len({cell.model.rank for cell in like[:count]}) > 1
    return like[:count]


def test_the_papers_grids_have_the_papers_sizes():
    sizes = {e.name.removeprefix("amsel2024/"): e.size for e in experiments(Scale.PAPER)}
    assert FIG1.size == 7 * 3 * 3 * 5 == 315
    assert sizes["positions"] == 3 * 2 * 7 * 5
    assert sizes["tokens"] == 4 * 5 * 5
    assert sizes["dims"] == 4 * 5 * 5
    cell = FIG1.cells()[0]
    assert (cell.task.dim, cell.task.tokens, cell.model.hidden, cell.train.batch) == (64, 16, 2048, 256)


def test_the_authors_recipe_is_theirs():
    assert (PAPER_RECIPE.steps, PAPER_RECIPE.batch, PAPER_RECIPE.learning_rate) == (100_000, 256, 0.01)
    assert (PAPER_RECIPE.betas, PAPER_RECIPE.warmup) == ((0.9, 0.95), 0.05)
    assert (PAPER_RECIPE.clip, PAPER_RECIPE.start, PAPER_RECIPE.depth_power) == (None, Start.PYTORCH, 0.0)


def test_a_rank_sweep_with_its_seeds_is_one_stack():
    cells = FIG1.cells()
    assert len({TRAINER.shape_key(cell) for cell in cells}) == 3 * 3
    assert sum(TRAINER.shape_key(cell) == TRAINER.shape_key(cells[0]) for cell in cells) == 7 * 5


def test_a_member_equals_its_solo_run():
    cells = stack()
    weights, losses = train_group(cells, Job())
    for member in (0, len(cells) - 1):
        alone, own = train_group(cells[member : member + 1], Job())
        torch.testing.assert_close(losses[:, member], own[:, 0], rtol=1e-4, atol=1e-5)
        for name in alone.keys() - {
            "b_k"
        }:  # softmax ignores it: its gradient is rounding, which Adam makes large
            tensor = alone[name]
            torch.testing.assert_close(weights[name][member], tensor[0], rtol=1e-3, atol=1e-4)


def test_our_start_is_better_than_the_constant_answer_and_the_authors_is_worse():
    cells = [cell for cell in SMOKE["figure1"].cells() if cell.model.layers == 3][:2]
    first, spread, reach = {}, {}, {}
    for start in Start:
        changed = [_with(cell, start=start) for cell in cells]
        first[start] = float(train_group(changed, Job(steps=1))[1].mean())
        weights = start_of(changed, "cpu")
        spread[start] = float(weights["w_q"].norm() * weights["w_k"].norm())
        reach[start] = weights["w_o"].norm(dim=(2, 3))[0]
        assert float(weights["mlp_norm"][0, 0]) == 1.0
    assert (
        max(error for start, error in first.items() if start not in (Start.PYTORCH, Start.COPIES))
        < 1.0
        < min(first[Start.PYTORCH], first[Start.COPIES])
    )
    assert spread[Start.PYTORCH] == spread[Start.TOWARDS_ANSWER] == spread[Start.LAST_LAYER]
    louder = torch.tensor([1.0, 1.0, math.sqrt(6 * 4)])  # four tokens, budget 1
    torch.testing.assert_close(reach[Start.LAST_LAYER], louder * reach[Start.TOWARDS_ANSWER])
    alone = [cell for cell in SMOKE["figure1"].cells() if cell.model.layers == 1][:2]
    ours, before = (
        start_of([_with(cell, start=start) for cell in alone], "cpu")
        for start in (Start.LAST_LAYER, Start.TOWARDS_ANSWER)
    )
    assert all(ours[name].equal(before[name]) for name in ours), "a single layer has no others to be ahead of"
    times = APART * 2 * cells[0].model.width
    assert spread[Start.HEADS_APART] == pytest.approx(times * spread[Start.PYTORCH], rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")
def test_two_points_trained_in_a_graph_are_the_plain_ones():
    cells = SMOKE["two-points"].cells()[:2]
    train = cells[0].train.replace(steps=20)
    cells = [replace(cell, train=train) for cell in cells]
    weights = two_points.TwoPointsTrainer().train(cells, Job("cuda"))
    draw = two_points._drawn_there(cells, train.batch, "cuda")
    plain, _ = adamw(
        head_sum.init(cells[0].model, [cell.seed for cell in cells], device="cuda"),
        lambda step: draw(torch.tensor([step], device="cuda")),
        two_points._losses,
        train,
    )
    torch.testing.assert_close(weights, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not usable("cuda") or not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    ("precision", "close"), [("float32", 1e-4), ("tf32", 1e-2), ("bfloat16", 5e-2), ("float16", 1e-2)]
)
@pytest.mark.parametrize(("ranks", "way"), [((1, 4), Way.PRODUCTS), ((8, 16), Way.STOCK)])
def test_a_training_by_kernels_and_graph_is_the_plain_one(ranks, way, precision, close):
    """The same batches, by torch's own products in a plain loop; at such ranks both want positions in one order."""
    large = [
        replace(cell, model=cell.model.replace(dim=16, rank=rank)) for cell in stack()[:1] for rank in ranks
    ]
    task = large[0].task.__class__(dim=16, tokens=16, target=large[0].task.target)
    cells = [_with(replace(cell, task=task), precision=Precision(precision), steps=20) for cell in large]
    _, losses = train_group(cells, Job("cuda"))
    train, models = cells[0].train, [cell.model for cell in cells]
    program = Program(way, fused=False, dtype=torch.float32)
    draw = DrawnThere(cells, "cuda").arranged(program)
    _, wanted = adamw(
        leaves_of(start_of(cells, "cuda"), program),
        batch_at=lambda step: draw(torch.tensor([step], device="cuda")),
        losses_of=lambda leaves, pair: training.squared_error(
            encode(models, leaves, pair[0], task.tokens, program), pair[1]
        ),
        settings=train.replace(learning_rate=train.learning_rate * models[0].layers ** -train.depth_power),
    )
    torch.testing.assert_close(losses, wanted, rtol=close, atol=0)


def test_a_record_says_whether_the_cell_trained():
    cells = stack()
    weights, losses = train_group(cells, Job())
    found = records(cells, weights, losses, "cpu")
    assert all(
        record["trained"] == (record["error"] < record["without_attention"] - 0.01) for record in found
    )
    assert all(record["left_out"] == 0 for record in found)
    losses[3, 1] = torch.nan
    broken = {name: tensor * float("nan") for name, tensor in weights.items()}
    again = records(cells, broken, losses, "cpu")
    assert not any(record["trained"] or record["left_out"] for record in again)
    halves = [_with(cell, precision=Precision.FLOAT16) for cell in cells]
    assert [record["left_out"] for record in records(halves, weights, losses, "cpu")] == [0, 1, 0, 0]


def test_cells_that_overflowed_leave_a_gap_and_are_counted():
    errors = [0.5, 0.6, 0.1, math.nan]
    table = pd.DataFrame(
        {"rank": [1, 1, 64, 64], "budget": 8, "error": errors, "trained": [error < 1 for error in errors]}
    )
    ours, lost = _lines(table, "budget", "rank", str)
    assert ours.y[0] == pytest.approx(0.55)
    assert math.isnan(ours.y[1])
    assert lost.name == "did not train (1 overflowed)"
    assert "1 overflowed and have no error" in untrained(table)
    assert untrained(table[:3]) == UNTRAINED
    told = untrained(table[:3].assign(left_out=[0.0, 2.0, math.nan]))
    assert "overflowed in some steps of 1 of the cells, at most 2 in one" in told


def test_identity_fit_of_minus_a_multiple_of_the_identity():
    fit = identity_fit(-20.0 * torch.eye(4).expand(3, -1, -1))
    assert fit == {
        "angle": pytest.approx(180.0),
        "norm": pytest.approx(40.0),
        "sharpness": pytest.approx(10.0),
    }
    skew = torch.zeros(1, 2, 2)
    skew[0, 0, 1] = 1.0
    assert identity_fit(skew)["angle"] == pytest.approx(90.0)
    for dim in range(2, 12):
        assert identity_fit(0.1 * torch.eye(dim).expand(1, -1, -1))["angle"] == pytest.approx(0.0, abs=0.1), (
            "a cosine that is rounded to more than 1 is 1"
        )


def test_the_best_epoch_is_the_least_mean_of_a_hundred_steps():
    losses = torch.cat([torch.full((100, 1), value) for value in (3.0, 1.0, 2.0)])
    assert best_epoch(losses).tolist() == [1.0]
    assert best_epoch(losses[:150]).tolist() == [3.0]
    assert best_epoch(losses[95:105]).tolist() == [2.0]
    assert best_epoch(torch.tensor([[3.0], [3.0], [3.0], [0.0], [0.0]]), epoch=3).tolist() == [3.0], (
        "two are no epoch"
    )
    losses[130] = torch.nan  # a step that was left out
    assert best_epoch(losses).tolist() == [2.0]
    losses[::100] = torch.inf
    assert best_epoch(losses).tolist() == [math.inf]


def test_a_killed_group_goes_on_inside_and_ends_the_same(tmp_path, monkeypatch):
    cells = stack()
    whole = [outcome.records for outcome in TRAINER.run(cells, Job())]
    monkeypatch.setattr(training, "ResumeState", lambda path: ResumeState(path, seconds=0.0))
    steps = []

    def die():
        steps.append(1)
        if len(steps) == 10:
            raise KeyboardInterrupt

    path = tmp_path / "killed.pt"
    with pytest.raises(KeyboardInterrupt):
        TRAINER.run(cells, Job(state=path, tick=die))
    drawn, told = [], []
    batch = training.batch
    monkeypatch.setattr(training, "batch", lambda *given, **kind: drawn.append(1) or batch(*given, **kind))
    resumed = TRAINER.run(cells, Job(state=path, tick=lambda: told.append(1)))
    assert len(drawn) == cells[0].train.steps - 10
    assert len(told) == cells[0].train.steps
    assert [outcome.records for outcome in resumed] == whole


def test_smoke_runs_from_end_to_end_and_every_figure_is_drawn(tmp_path):
    chosen = [SMOKE[name] for name in ("positions", "tokens", "dims", "two-points")]
    _, tables = finish(chosen, tmp_path)
    assert all(len(tables[experiment.name]) == experiment.size for experiment in chosen)
    assert set(tables["amsel2024/positions"]["positions"]) == {kind.value for kind in OUR_POSITIONS}
    assert (tables["amsel2024/two-points"]["error"] >= tables["amsel2024/two-points"]["floor"]).all()
    drawn = figures(_results(tables))
    assert [figure.id for figure in drawn] == [
        f"amsel2024-{name}" for name in ("positions", "tokens", "dims", "floor", "survey")
    ]
    _, bound, linear = drawn[3].panels[0].series
    assert bound.x == [1, 2, 4]
    assert linear.x == [1, 2]  # one head of full rank is not linear
    assert linear.y == [linear_error(4)] * 2
    assert not list(tmp_path.glob("unfinished/*/*"))


def test_published_values_are_the_talks():
    table = published()
    assert len(table[table["figure"] == "1"]) == 63
    rank_64 = table[(table["figure"] == "1") & (table["rank"] == 64) & (table["layers"] == 1)]
    assert rank_64.set_index("budget")["error"].to_dict() == {1: 0.0155, 8: 0.0069, 64: 0.0019}


def _with(cell, **changes):
    return type(cell)(
        cell.experiment, cell.task, cell.model, cell.train.replace(**changes), cell.seed, cell.point
    )


def _results(tables):
    from rankscope.lab.paper import Results

    return Results(tables, lambda key: {})
