"""Batches that repeat: in the same order in every epoch, and never without the setting; what is recorded of them."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from rankscope.core.streams import Split
from rankscope.ensembles.encoder import Positions
from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024 import training
from rankscope.papers.amsel2024.claims.memory import CLAIMS
from rankscope.papers.amsel2024.experiments import AUTHORS_POSITIONS, experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.findings import findings
from rankscope.papers.amsel2024.measurement import records
from rankscope.papers.amsel2024.published import published
from rankscope.papers.amsel2024.recipe import AUTHORS_RECIPE, Start
from rankscope.papers.amsel2024.trainer import EncoderTrainer
from rankscope.papers.amsel2024.training import start_of, train_group
from rankscope.training.schedule import epoch_warmup_cosine

REPEATED = {scale: next(e for e in experiments(scale) if e.name.endswith("/repeated")) for scale in Scale}
CELLS = REPEATED[Scale.SMOKE].cells()[:2]
TRAINER = EncoderTrainer()


def drawn(cells, monkeypatch, steps=12):
    """The points of every step's batch, as training draws them."""
    seen, batch = [], training.batch

    def kept(*given, **named):
        pair = batch(*given, **named)
        seen.append(pair[0])
        return pair

    monkeypatch.setattr(training, "batch", kept)
    train_group(cells, Job(steps=steps))
    return seen


def test_an_epoch_repeats_in_the_same_order(monkeypatch):
    seen = drawn(CELLS, monkeypatch)
    distinct = CELLS[0].train.distinct_batches
    assert distinct == 4
    for step, points in enumerate(seen):
        assert torch.equal(points, seen[step % distinct])
    assert len({points.sum().item() for points in seen}) == distinct


def test_without_the_setting_no_batch_repeats(monkeypatch):
    fresh = [_with(cell, distinct_batches=None) for cell in CELLS]
    seen = drawn(fresh, monkeypatch)
    assert len({points.sum().item() for points in seen}) == len(seen) == 12


def test_a_training_that_goes_on_sees_the_batches_it_would_have_seen(monkeypatch, tmp_path):
    whole = train_group(CELLS, Job())[1]
    steps = []

    def stop():
        steps.append(1)
        if len(steps) == 7:  # within the second epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_group(CELLS, Job(state=tmp_path / "state", tick=stop))
    torch.testing.assert_close(train_group(CELLS, Job(state=tmp_path / "state"))[1], whole)


def test_the_authors_protocol_is_theirs():
    cell = REPEATED[Scale.PAPER].cells()[0]
    assert REPEATED[Scale.PAPER].size == 7 * 3 * 3 * 2
    assert cell.train == AUTHORS_RECIPE.replace(precision=cell.train.precision)
    assert (cell.train.steps, cell.train.batch, cell.train.learning_rate) == (100_000, 256, 0.01)
    assert (cell.train.distinct_batches, cell.train.epoch, cell.train.start) == (100, 100, Start.COPIES)
    rates = [cell.train.learning_rate * cell.train.factor(100 * epoch) for epoch in range(1000)]
    theirs = [0.01 * epoch / 49 for epoch in range(50)]
    theirs += [0.005 * (1 + math.cos(math.pi * (epoch - 50) / 950)) for epoch in range(50, 1000)]
    assert rates == pytest.approx(theirs, abs=1e-12)
    assert cell.train.factor(149) == cell.train.factor(100)


def test_no_warm_up_epoch_is_no_division_by_zero():
    assert epoch_warmup_cosine(0, 10, 0.1, 10) == 1.0
    assert epoch_warmup_cosine(0, 20, 0.5, 10) == 0.0


def test_layers_start_as_copies_of_one():
    cells = [
        _with(cell, start=Start.COPIES) for cell in REPEATED[Scale.SMOKE].cells() if cell.model.layers == 3
    ][:2]
    weights, stock = (
        start_of(cells, "cpu"),
        start_of([_with(cell, start=Start.PYTORCH) for cell in cells], "cpu"),
    )
    for name, tensor in weights.items():
        assert torch.equal(tensor, tensor[:, :1].expand_as(tensor)), name
        assert torch.equal(tensor[:, 0], stock[name][:, 0]), name
    assert not torch.equal(stock["w_q"][:, 0], stock["w_q"][:, 1])


def test_what_is_recorded_is_of_epochs_and_trained_means_what_it_was_trained_on(monkeypatch):
    losses = torch.tensor(
        [[3.0, 3.0], [1.0, 1.0], [0.2, 2.0], [0.4, 2.0], [0.6, 0.1], [0.6, 0.1], [0.8, 0.1], [0.8, 0.1]]
    )
    cells = [_with(cell, distinct_batches=2, start=Start.PYTORCH) for cell in CELLS]
    found = records(cells, start_of(cells, "cpu"), losses, "cpu")
    assert [round(one["best_epoch"], 6) for one in found] == [0.3, 0.1]
    assert [round(one["last_epoch"], 6) for one in found] == [0.8, 0.1]
    assert [one["trained"] for one in found] == [True, True]
    assert all(one["error"] > 1 for one in found), "nothing was trained"
    fresh = records(
        [_with(cell, distinct_batches=None) for cell in cells], start_of(cells, "cpu"), losses, "cpu"
    )
    assert [one["trained"] for one in fresh] == [False, False]


def table(fit=0.1, fresh=1.0):
    return pd.DataFrame(
        [
            {
                "rank": rank, "layers": layers, "budget": 1, "dim": 8, "seed": seed, "cell": f"{rank}{layers}{seed}",
                "best_epoch": fit * (1 + 0.01 * seed), "error": fresh if rank < 8 else 0.1, "trained": True,
            }
            for rank in (1, 4, 8) for layers in (1, 3) for seed in range(4)
        ]
    )  # fmt: skip


def test_memory_is_claimed_where_new_points_are_worse_and_not_where_they_are_alike():
    claim = CLAIMS[0]
    assert judge(claim, table()).verdict is Verdict.HOLDS
    assert judge(claim, table(fit=0.9)).verdict is Verdict.FAILS
    shallow = table()
    shallow.loc[shallow["layers"] == 1, "error"] = 0.1
    assert judge(claim, shallow).verdict is Verdict.HOLDS, "one layer is not asked"


def test_memory_leaves_out_and_names_ranks_of_which_a_training_fits_nothing_or_overflowed():
    claim = CLAIMS[0]
    one = (table()["rank"] == 4) & (table()["layers"] == 3) & (table()["seed"] == 2)
    named = "(left out, as they do not fit them or overflowed: 3 layers, budget 1, rank 4)"
    untrained = table().assign(trained=~one)
    lost = untrained.assign(best_epoch=untrained["best_epoch"].where(~one, math.inf))
    for without in (untrained, lost, table().assign(left_out=one * 10_001)):
        judgement = judge(claim, without.assign(error=without["error"].where(without["rank"] != 4, 0.1)))
        assert judgement.verdict is Verdict.HOLDS, "rank 1 alone is asked"
        assert named in judgement.how
    assert named not in judge(claim, table().assign(left_out=one * 10_000)).how


def test_a_shape_that_fits_nothing_does_not_decide_what_is_remembered():
    claim = CLAIMS[0]
    junk = table(fit=1.0).assign(budget=8, trained=False)
    judgement = judge(claim, pd.concat([table(), junk], ignore_index=True))
    assert (judgement.verdict, len(judgement.checks)) == (Verdict.HOLDS, 1)
    assert "overflowed: 3 layers, budget 8)" in judgement.how
    assert judge(claim, junk).verdict is Verdict.UNDECIDED, "where nothing fits there is nothing to ask"


def test_memory_is_asked_of_the_weights_that_were_measured():
    claim = CLAIMS[0]
    fell_back = table().assign(last_epoch=1.0)
    assert judge(claim, fell_back).verdict is Verdict.FAILS, "the least epoch had other weights"
    assert judge(claim, table().assign(last_epoch=math.nan)).verdict is Verdict.HOLDS


def drawn_figure(tables):
    return next(
        figure
        for figure in figures(
            Results({f"amsel2024/{name}": one for name, one in tables.items()}, lambda key: {})
        )
        if figure.id == "amsel2024-1"
    )


def test_figure_1_has_both_errors_and_the_fresh_training_beside_them():
    fresh = table(fresh=0.5).assign(trained=True)
    repeated = table().assign(angle=180.0, norm=1.0, sharpness=1.0)
    both = drawn_figure({"repeated": repeated, "figure1": fresh})
    assert both.experiments == ("amsel2024/figure1", "amsel2024/repeated")
    assert [panel.title for panel in both.panels] == ["1 layer, budget 1", "3 layers, budget 1"]
    assert [one.y[0] for one in both.panels[1].series] == pytest.approx([0.1, 1.0, 0.5, 1.0]), (
        "of losses the least, and the error of no answer"
    )
    alone = drawn_figure({"figure1": fresh})
    names = [one.entry for one in alone.panels[0].series]
    assert [name.endswith("(not run)") for name in names] == [True, True, False, False]
    assert [panel.title for panel in alone.panels] == ["1 layer, budget 1", "3 layers, budget 1"], (
        "the legend says it"
    )
    partly = drawn_figure({"figure1": fresh, "repeated": repeated[repeated["layers"] == 1]})
    assert partly.panels[1].title == "3 layers, budget 1 (repeated batches not run)"
    untrained = drawn_figure({"figure1": fresh.assign(trained=fresh["rank"] > 1)})
    assert untrained.panels[0].series[-2].name == "did not train"
    last = both.panels[0].series[-1]
    assert (last.name, last.x, last.y) == ("no answer", [1.0, 8.0], [1.0, 1.0])


def test_a_curve_of_figure_1_breaks_at_a_rank_that_was_not_run_and_the_caption_names_it():
    fresh, repeated = table(fresh=0.5), table().assign(angle=180.0, norm=1.0, sharpness=1.0)
    middle = (fresh["rank"] == 4) & (fresh["layers"] == 3)
    figure = drawn_figure({"repeated": repeated[~middle], "figure1": fresh[~middle]})
    for curve in figure.panels[1].series[:3]:
        assert (list(curve.x), [math.isnan(y) for y in curve.y]) == ([1, 4, 8], [False, True, False]), (
            curve.name
        )
    for batches in ("repeated batches", "fresh batches"):
        assert f"Not run on {batches}: 3 layers, budget 1, rank 4." in figure.caption
    assert "Not run" not in drawn_figure({"repeated": repeated, "figure1": fresh}).caption
    unfit = repeated.assign(trained=repeated["layers"] == 1)
    assert (
        "that fit nothing are part of the curves: 3 layers, budget 1."
        in drawn_figure({"repeated": unfit}).caption
    )


def test_members_with_other_numbers_of_distinct_batches_share_a_stack_and_equal_their_solo_runs():
    counts = (1, 3, None)
    cells = [_with(CELLS[0], distinct_batches=count, steps=20) for count in counts]
    assert len({TRAINER.shape_key(cell) for cell in cells}) == 1
    found = TRAINER.run(cells, Job())
    for cell, outcome in zip(cells, found, strict=True):
        (alone,) = TRAINER.run([cell], Job())
        assert outcome.records[0] == pytest.approx(alone.records[0], rel=1e-3)
        assert ("recalled" in outcome.records[0]) == (cell.train.distinct_batches is not None)


def test_what_is_recalled_are_the_batches_trained_on():
    cell = _with(CELLS[0], distinct_batches=1, steps=400)
    large = replace(cell, model=cell.model.replace(hidden=128, layers=3), train=cell.train.replace(batch=4))
    (outcome,) = TRAINER.run([large], Job())
    record = outcome.records[0]
    assert record["recalled"] > 0.9 > record["answered"]


def authors_encoder(cell, weights):
    """Their model in stock modules: torch's encoder layer with averaged blocks of attention and norms of one scalar."""
    model = cell.model
    heads = model.heads // model.budget

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.scale * functional.normalize(x, dim=-1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.MultiheadAttention(model.width, heads, batch_first=True) for _ in range(model.budget)
            )
            self.up, self.down = nn.Linear(model.width, model.hidden), nn.Linear(model.hidden, model.width)
            self.first, self.second = Norm(), Norm()

        def forward(self, x):
            attended = sum(block(x, x, x, need_weights=False)[0] for block in self.blocks) / model.budget
            x = self.first(x + attended)
            return self.second(x + self.down(torch.relu(self.up(x))))

    layers = nn.Sequential(*(Layer() for _ in range(model.layers)))
    own = {name: tensor[0] for name, tensor in weights.items()}
    with torch.no_grad():
        for place, layer in enumerate(layers):
            for number, block in enumerate(layer.blocks):
                rows = slice(number * model.block, (number + 1) * model.block)
                block.in_proj_weight.copy_(torch.cat([own[f"w_{part}"][place, rows] for part in "qkv"]))
                block.out_proj.weight.copy_(own["w_o"][place][:, rows])
            layer.up.weight.copy_(own["w_in"][place])
            layer.up.bias.copy_(own["b_in"][place])
            layer.down.weight.copy_(own["w_out"][place])
            layer.down.bias.copy_(own["b_out"][place])
    return layers


@pytest.mark.parametrize("positions", AUTHORS_POSITIONS)
def test_the_authors_program_in_stock_modules_has_the_same_losses(positions):
    """In float32, over three epochs of four batches, a small cell: one learning rate per epoch, 0 in the first."""
    small = next(
        cell for cell in REPEATED[Scale.SMOKE].cells() if cell.model.layers == 3 and cell.model.budget == 4
    )
    model = small.model.replace(positions=positions, rank=2)
    recipe = AUTHORS_RECIPE.replace(
        steps=40, batch=8, distinct_batches=4, epoch=4, learning_rate=0.005, warmup=0.3
    )
    cell = replace(small, model=model, train=recipe)
    weights = start_of([cell], "cpu")
    stock = authors_encoder(cell, weights)
    learned = [*stock.parameters()]
    if positions is not Positions.NONE:
        learned.append(places := nn.Parameter(weights["positions"][0].clone()))
    optimizer = torch.optim.AdamW(learned, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for step in range(12):
        points, answers = (one[0] for one in training.batch([cell], Split.TRAIN, step, device="cpu"))
        if positions is Positions.AUTHORS_ADDITIVE:
            points = points + places
        elif positions is Positions.AUTHORS_CONCATENATED:
            points = torch.cat([points, places.expand(len(points), -1, -1)], dim=-1)
        output = stock(points)[..., : model.dim]
        loss = functional.mse_loss(output, answers) * model.dim
        losses.append(loss.item())
        optimizer.param_groups[0]["lr"] = 0.005 * (step // 4) / 2  # three epochs of ten climb
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ours = train_group([cell], Job(steps=12))[1][:, 0]
    torch.testing.assert_close(ours, torch.tensor(losses), rtol=2e-3, atol=1e-4)


def test_the_authors_positions_are_as_long_and_as_wide_as_theirs():
    cell = REPEATED[Scale.PAPER].cells()[0]
    added, appended = (
        replace(cell, model=cell.model.replace(positions=kind, budget=8, rank=32, hidden=4))
        for kind in (Positions.AUTHORS_ADDITIVE, Positions.AUTHORS_CONCATENATED)
    )
    places = start_of([added], "cpu")["positions"][0]
    assert float(places.norm(dim=-1).mean()) == pytest.approx(math.sqrt(2 * 64), rel=0.1)
    assert float(places.mean()) == pytest.approx(-1, abs=0.1)
    assert (added.model.width, added.model.heads) == (64, 8 * 64 // 32)
    weights = start_of([appended], "cpu")
    places = weights["positions"][0]
    assert (float(places.min()), float(places.max())) == pytest.approx((-1, 1), abs=0.02)
    assert (appended.model.width, appended.model.heads) == (128, 8 * 128 // 32)
    assert weights["w_q"].shape[-2:] == (8 * 128, 128)
    assert (
        sum(t[0].numel() for name, t in weights.items() if name != "positions") == appended.model.parameters
    )


def _with(cell, **changes):
    return type(cell)(
        cell.experiment, cell.task, cell.model, cell.train.replace(**changes), cell.seed, cell.point
    )


def test_the_finding_on_memory_leaves_out_what_overflowed():
    worst = (table()["rank"] == 4) & (table()["layers"] == 3)
    made = table().assign(error=table()["error"].where(~worst, 3.0))
    for lost, rank in ((0, 4), (60_000, 1)):
        tables = {"amsel2024/repeated": made.assign(left_out=worst * lost, last_epoch=made["best_epoch"])}
        (found,) = findings(Results(tables, lambda key: {}))
        assert f"3 layers of rank {rank} end at 0.1; on new points the same weights" in found.sentence


def test_the_finding_on_memory_says_which_weights_it_is_of():
    tables = {"amsel2024/repeated": table().assign(last_epoch=math.nan)}
    (found,) = findings(Results(tables, lambda key: {}))
    assert (
        "have 0.1 in their least epoch; on new points the final weights have an error of 1" in found.sentence
    )
    fell_back = {"amsel2024/repeated": table().assign(last_epoch=1.0)}
    assert findings(Results(fell_back, lambda key: {})) == [], "at the end they have no answer on either"


def test_the_finding_on_memory_counts_the_seeds_behind_every_value_that_it_counts():
    theirs = published()
    theirs = theirs[theirs["figure"] == "1"].assign(dim=64, trained=True, left_out=0, angle=0.0, norm=1.0)
    rows = theirs.assign(best_epoch=theirs["error"], error=1.0)
    twice = pd.concat([rows.assign(seed=seed, cell=str(seed)) for seed in (0, 1)], ignore_index=True)
    once = twice[(twice["seed"] == 0) | (twice["rank"] > 1)]
    for fitted, new, seeds in ((twice, twice, 2), (once, twice, 1), (twice, once, 1)):
        tables = {"amsel2024/repeated": fitted, "amsel2024/figure1": new}
        *_, found = findings(Results(tables, lambda key: {}))
        assert found.seeds == seeds
        assert "63 of 63 published values" in found.sentence


@pytest.mark.parametrize(
    ("deep", "answer"),
    [
        ((0.7, 0.2), "Not nearly: it divides the error by 2.5 at most."),
        ((0.79, 0.49), "No: it does not help."),
        ((0.7, 0.15), "It does here."),
    ],
)
def test_the_finding_on_depth_says_how_much_it_helps_the_rank_that_it_helps_the_most(deep, answer):
    errors = {1: (0.8, 0.5, 0.1), 3: (*deep, 0.1)}
    rows = pd.DataFrame(
        [
            {"rank": rank, "layers": layers, "budget": 1, "dim": 8, "seed": seed, "error": error}
            for layers, row in errors.items()
            for rank, error in zip((1, 4, 8), row, strict=True)
            for seed in range(2)
        ]
    )
    (found,) = findings(Results({"amsel2024/figure1": rows}, lambda key: {}))
    assert found.answer == answer
    assert (
        f"heads of rank 4 in 8 dimensions, which gain the most by depth, err by 0.5 in 1 layer and by {deep[1]} in"
        in (found.sentence)
    )
