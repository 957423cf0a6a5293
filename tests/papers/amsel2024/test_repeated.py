"""Batches that repeat: in the same order in every epoch, and never without the setting; what is recorded of them."""

import math

import pandas as pd
import pytest
import torch

from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024 import training
from rankscope.papers.amsel2024.claims.memory import CLAIMS
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.measurement import records
from rankscope.papers.amsel2024.training import AUTHORS_RECIPE, Start, start_of, train_group
from rankscope.training.schedule import epoch_warmup_cosine

REPEATED = {scale: next(e for e in experiments(scale) if e.name.endswith("/repeated")) for scale in Scale}
CELLS = REPEATED[Scale.SMOKE].cells()[:2]


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
                "best_epoch": fit * (1 + 0.01 * seed), "error": fresh if rank < 8 else 0.1,
            }
            for rank in (1, 4, 8) for layers in (1, 3) for seed in range(4)
        ]
    )  # fmt: skip


def test_memory_is_claimed_where_new_points_are_worse_and_not_where_they_are_alike():
    (claim,) = CLAIMS
    assert judge(claim, table()).verdict is Verdict.HOLDS
    assert judge(claim, table(fit=0.9)).verdict is Verdict.FAILS
    shallow = table()
    shallow.loc[shallow["layers"] == 1, "error"] = 0.1
    assert judge(claim, shallow).verdict is Verdict.HOLDS, "one layer is not asked"


def test_the_figure_has_both_errors_and_the_fresh_training_beside_them():
    fresh = table(fresh=0.5)
    found = figures(Results({"amsel2024/repeated": table()}, lambda key: {}))[0]
    assert found.id == "amsel2024-memory"
    assert [len(panel.series) for panel in found.panels] == [2, 2]
    both = figures(
        Results(
            {
                "amsel2024/repeated": table(),
                "amsel2024/figure1": fresh.assign(trained=True, angle=180.0, norm=1.0, sharpness=1.0),
            },
            lambda key: {},
        )
    )
    memory = next(figure for figure in both if figure.id == "amsel2024-memory")
    assert [one.y[0] for one in memory.panels[1].series] == pytest.approx([0.1015, 1.0, 0.5])


def _with(cell, **changes):
    return type(cell)(
        cell.experiment, cell.task, cell.model, cell.train.replace(**changes), cell.seed, cell.point
    )
