"""Encoders of several layers: the training, the measurements, the claims and the figures."""

import math

import pandas as pd
import pytest
import torch

from rankscope.core.streams import Split
from rankscope.ensembles import layered, patterns
from rankscope.ensembles.layered import Layered, Norm
from rankscope.ensembles.patterns import Init, OneLayer
from rankscope.figures.printed import save_static
from rankscope.lab import Experiment, Grid, Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.lab.tidy import rows_of
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.studies.depth import CLAIMS, experiments, figures
from rankscope.studies.depth.experiments import (
    FULL,
    HELD,
    MODEL,
    PLAIN,
    TASK,
    TRAIN,
)
from rankscope.studies.depth.measurement import (
    HEAD_FRACTIONS,
    NEURON_FRACTIONS,
    ORDERS,
    DepthExaminer,
    measured,
)
from rankscope.studies.depth.trainer import LayeredTrainer
from rankscope.tasks.patterns import batches
from tests.papers.laboratory import finish
from tests.studies.tidy import changed, one_value

SEEDS = range(5)
TRAINER = LayeredTrainer(measured)
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}
SMALL = Layered(dim=24, layers=2, heads=4, hidden=30, residual=True, norm=Norm.UNIT, back_noise=0.1)


def cells(model, steps=15, **grid):
    train = TRAIN.replace(steps=steps, batch=8, learning_rate=0.5)
    return Experiment("test", TASK, model, train, Grid(**grid), TRAINER).cells()


def test_a_member_equals_its_solo_run_and_plain_pytorch():
    group = cells(SMALL, seed=(0, 1), learning_rate=(0.2, 0.6))
    stacked = TRAINER.train(group, Job()).at[15]
    for place in (0, 3):
        solo = TRAINER.train(group[place : place + 1], Job()).at[15]
        plain = _plain_training(group[place])
        for name in SMALL.trained:
            assert torch.allclose(stacked[name][place], solo[name][0], atol=1e-5), name
            assert torch.allclose(stacked[name][place], plain[name], atol=1e-5), name
    assert not torch.allclose(stacked["w_v/1"][0], stacked["w_v/1"][2], atol=1e-3)


def _plain_training(cell):
    """The slow twin: one model, torch.optim.SGD."""
    weights = layered.init([cell.model], [cell.seed])
    leaves = [weights[name].requires_grad_() for name in cell.model.trained]
    optimizer = torch.optim.SGD(leaves, lr=cell.train.learning_rate / cell.model.layers)
    for batch in batches(
        [cell.task], [cell.seed], split=Split.TRAIN, steps=cell.train.steps, batch=cell.train.batch
    ):
        optimizer.zero_grad()
        patterns.hinge(layered.forward(cell.model, weights, batch.x), batch.labels).mean().backward()
        optimizer.step()
    return {name: tensor.detach()[0] for name, tensor in weights.items()}


def test_one_layer_of_one_head_trains_as_the_papers_model():
    group = cells(Layered(dim=24, hidden=30), seed=(0, 1))
    old = OneLayer(dim=24, rank=24, value_rank=24, hidden=30, init=Init.THEORY, init_scale=0.2)
    same = Experiment("test", TASK, old, group[0].train, Grid(seed=(0, 1)), OneLayerTrainer())
    deep, paper = TRAINER.train(group, Job()), same.trainer.train(same.cells(), Job())
    assert torch.allclose(deep.losses, paper.losses, atol=1e-5)
    for name in patterns.TRAINED:
        assert torch.allclose(deep.at[15][f"{name}/1"], paper.at[15][name], atol=1e-5), name


def test_the_rate_falls_with_the_depth():
    plain, full = (cells(model, seed=(0,), layers=(1, 2, 4)) for model in (MODEL, SMALL))
    assert [TRAINER.rate(cell) for cell in plain] == pytest.approx([0.5, 0.5 / 3, 0.5 / 27])
    assert [TRAINER.rate(cell) for cell in full] == [0.5, 0.25, 0.125]
    assert (
        len({TRAINER.shape_key(cell) for cell in cells(SMALL, seed=(0,), heads=(1, 2), norm=list(Norm))}) == 6
    )


def test_a_member_that_diverged_is_marked_and_leaves_its_neighbours_alone():
    plain = SMALL.replace(residual=False, norm=Norm.NONE, back_noise=1.0)
    group = cells(plain, seed=(0, 1), learning_rate=(0.5, 1e9))
    assert not TRAINER.train(group, Job()).at[15]["w_v/1"][2].isfinite().all()
    outcomes = TRAINER.run(group, Job())
    assert [outcome.records[0]["trained"] for outcome in outcomes[2:]] == [False, False]
    assert math.isnan(one_value(outcomes[2].records, "energy_rank", "update", layer=1, matrix="v"))
    alone = TRAINER.run(group[:2], Job())
    stacked, solo = (pd.DataFrame(members[1].records) for members in (outcomes, alone))
    pd.testing.assert_frame_equal(stacked, solo, rtol=1e-4, atol=1e-5)


def test_a_planted_update_is_measured_and_one_that_did_not_move_has_no_rank():
    group = cells(SMALL, seed=(0, 1))
    start = layered.init([SMALL] * 2, [0, 1])
    end = {name: tensor.clone() for name, tensor in start.items()}
    draw = torch.Generator().manual_seed(0)
    end["w_v/1"] += torch.randn(2, 24, 3, generator=draw) @ torch.randn(2, 3, 24, generator=draw)
    end["w_k/1"] += 1e-9 * torch.randn(2, 24, 24, generator=draw)
    end["w_o/1"][:, :10] += 1.0
    records = DepthExaminer(group, start, "cpu").records(end)[1]

    def rank(layer, matrix):
        return one_value(records, "energy_rank", "update", layer=layer, matrix=matrix)

    assert rank(1, "v") == 3
    assert rank(1, "o") == 1
    assert one_value(records, "moved", "update", layer=1, matrix="o") == pytest.approx(
        float((end["w_o/1"][1] - start["w_o/1"][1]).norm() / start["w_o/1"][1].norm()), rel=1e-5
    )
    assert one_value(records, "small_fraction", "neurons", layer=1) == pytest.approx(20 / 30)
    assert math.isnan(rank(1, "k"))
    assert math.isnan(rank(1, "q"))
    matrices = [record["matrix"] for record in records if record["measurement"] == "update"]
    assert "".join(matrices) == "qkvop" + "qkvo", "the last layer has no W_P"
    assert not any(record["trained"] for record in records)


def test_pruning_takes_the_units_it_says():
    group = cells(SMALL, seed=(0, 1))
    weights = layered.init([SMALL] * 2, [0, 1])
    for head in range(4):
        weights["w_v/1"][:, 6 * head : 6 * head + 6] *= (3, 1, 2, 4)[head]
    examiner = DepthExaminer(group, weights, "cpu")
    assert examiner.gone(weights, "heads", 0.5, "smallest")[1].tolist() == [[False, True, True, False]] * 2
    assert examiner.gone(weights, "heads", 0.25, "largest")[1].tolist() == [[False, False, False, True]] * 2
    chance = examiner.gone(weights, "neurons", 0.4, "random")
    assert chance[1].sum(-1).tolist() == [12, 12]
    assert not torch.equal(chance[1], chance[2])
    alone = DepthExaminer(group[1:], {n: t[1:] for n, t in weights.items()}, "cpu")
    assert torch.equal(
        alone.gone({n: t[1:] for n, t in weights.items()}, "neurons", 0.4, "random")[1], chance[1][1:]
    )

    def losses(examiner):
        return {
            (at["order"], at["units"], at["fraction"]): found["loss"]
            for at, found in examiner.pruning(weights)
        }

    few = layered.without_neurons(weights, examiner.gone(weights, "neurons", 0.4, "largest"))
    assert torch.equal(losses(examiner)["largest", "neurons", 0.4], examiner.loss(few))
    both = layered.without_heads(
        layered.without_neurons(weights, examiner.gone(weights, "neurons", 0.5, "smallest")),
        examiner.gone(weights, "heads", 0.5, "smallest"),
    )
    assert torch.equal(losses(examiner)["smallest", "both", 0.5], examiner.loss(both))
    two = losses(DepthExaminer(cells(SMALL.replace(heads=2), seed=(0, 1)), weights, "cpu"))
    assert ("random", "heads", 0.25) not in two, "half a head cannot go"
    assert not two["random", "heads", 0.5].isnan().any()


def updates(layers):
    return [
        {"measurement": "update", "layer": layer, "matrix": letter, "energy_rank": 2.0, "moved": 0.3}
        for layer in range(1, layers + 1)
        for letter in ("qkvop" if layer < layers else "qkvo")
    ]


def encoder(layers, heads):
    """The rows of an encoder of which every statement is true."""
    fractions = {
        "neurons": NEURON_FRACTIONS,
        **dict.fromkeys(("heads", "both"), HEAD_FRACTIONS if heads > 1 else ()),
    }
    return [
        {"measurement": "whole", "loss": 0.001},
        {"measurement": "truncation", "rank": 1, "loss": 0.2},
        {"measurement": "truncation", "rank": 2, "loss": 0.001},
        *updates(layers),
        *(
            {"measurement": "neurons", "layer": layer, "separation": 0.9, "small_fraction": 0.4}
            for layer in range(1, layers + 1)
        ),
        *(
            {"measurement": "pruning", "units": units, "order": order, "fraction": f, "loss": 0.5 * (order == "largest")}
            for order in ORDERS for units in fractions for f in fractions[units]
        ),
    ]  # fmt: skip


def of_seeds(points):
    """A table with the rows of every point, for every seed."""
    return pd.DataFrame(
        [
            {**point, "seed": seed, "cell": f"{place}-{seed}", "trained": True, **row}
            for place, (point, rows) in enumerate(points)
            for seed in SEEDS
            for row in rows
        ]
    )


def world():
    """A table in which every statement is true."""
    return of_seeds(
        ({"wiring": wiring, "layers": layers, "heads": heads}, encoder(layers, heads))
        for wiring in (PLAIN, FULL)
        for layers in (1, 2)
        for heads in (1, 8)
    )


COUNTEREXAMPLES = {
    "depth-rank-plain": changed(
        "energy_rank", 3.0, "update", wiring=PLAIN, layers=2, heads=8, layer=1, matrix="p"
    ),
    "depth-rank-full": changed(
        "energy_rank", 15.0, "update", wiring=FULL, layers=2, heads=1, layer=1, matrix="o"
    ),
    "depth-truncation": changed("loss", 0.1, "truncation", rank=2, wiring=FULL, layers=2),
}


def test_every_claim_has_a_counterexample():
    assert set(COUNTEREXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_a_claim_holds_where_it_is_true_and_fails_where_it_is_false(name):
    claim = BY_ID[name]
    judgement = judge(claim, world())
    assert judgement.verdict is Verdict.HOLDS, judgement.how
    judgement = judge(claim, COUNTEREXAMPLES[name](world()))
    assert judgement.verdict is Verdict.FAILS, judgement.how


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_what_did_not_train_enters_no_verdict(name):
    claim = BY_ID[name]
    table = COUNTEREXAMPLES[name](world())
    broken = table.ne(world()) & ~(table.isna() & world().isna())
    marked = table.assign(trained=~table["cell"].isin(table.loc[broken.any(axis=1), "cell"]))
    assert judge(claim, marked).verdict is not Verdict.FAILS
    assert judge(claim, table.assign(trained=False)).verdict is Verdict.UNDECIDED


def test_a_matrix_that_did_not_move_enters_no_rank():
    still = changed("energy_rank", math.nan, "update", matrix="q", wiring=PLAIN, layers=2)(world())
    assert judge(BY_ID["depth-rank-plain"], still).verdict is Verdict.HOLDS


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Every experiment at scale smoke: the tables."""
    return finish(experiments(Scale.SMOKE), tmp_path_factory.mktemp("depth"))[1]


def test_the_smallest_scale_trains_and_tells_what_norms_do(smoke):
    assert smoke["li2024/depth"]["trained"].all()
    assert judge(BY_ID["depth-rank-plain"], smoke["li2024/depth"]).verdict is Verdict.HOLDS
    assert judge(BY_ID["depth-rank-full"], smoke["li2024/depth"]).verdict is Verdict.FAILS
    held = rows_of(smoke["li2024/depth-wiring"], "update", wiring=HELD)
    assert held["energy_rank"].max() == 2


def test_every_claim_has_its_figure(smoke):
    drawn = figures(Results(smoke, lambda key: {}))
    assert {claim.figure for claim in CLAIMS} <= {figure.id for figure in drawn}
    for figure in drawn:
        assert set(figure.experiments) <= set(smoke)
        assert all(panel.series or panel.heat_map for panel in figure.panels)
    ranks = drawn[0].panels[1].heat_map
    assert (ranks.x, ranks.y) == (["2"], ["1", "2"])
    assert float(ranks.marks[1][0]) > 2


def test_a_map_marks_what_did_not_train(smoke, tmp_path):
    table = smoke["li2024/depth"]
    some = table.assign(trained=(table["seed"] > 0) | (table["layers"] == 1))
    ranks = figures(Results({"li2024/depth": some}, lambda key: {}))[0].panels[0].heat_map
    assert ranks.marks == [["2.0"], ["2.0*"]]
    nothing = {name: part.assign(trained=False) for name, part in smoke.items()}
    drawn = figures(Results(nothing, lambda key: {}))
    assert drawn[0].panels[0].heat_map.marks == [["–"], ["–"]]
    assert all(path.stat().st_size > 5_000 for path in save_static(drawn[0], tmp_path))


def test_sizes_of_the_scales():
    sizes = {scale: [experiment.size for experiment in experiments(scale)] for scale in Scale}
    assert sizes == {Scale.SMOKE: [8, 10], Scale.QUICK: [120, 25], Scale.PAPER: [640, 100]}
