"""Scores compared: what is measured, the claims and the figures."""

import pandas as pd
import pytest
import torch

from rankscope.core.streams import Split
from rankscope.ensembles import layered, patterns
from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.pruning import CLAIMS, experiments, figures
from rankscope.studies.pruning.measurement import CALIBRATION_SAMPLES, PruningExaminer, Score, Units
from rankscope.tasks.patterns import batches
from tests.papers.laboratory import finish
from tests.studies.tidy import one_value

SEEDS = range(5)
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in CLAIMS}


@pytest.fixture(scope="module")
def trained():
    """Two small encoders of two layers and two heads, a few steps in."""
    experiment = experiments(Scale.SMOKE)[1]
    group = [cell for cell in experiment.cells() if "residual" in dict(cell.point)["encoder"]]
    trajectory = experiment.trainer.train(group, Job(steps=12))
    return group, trajectory.at[0], trajectory.at[12]


def test_scores_of_neurons_come_from_samples_that_the_test_does_not_see(trained):
    group, start, end = trained
    examiner = PruningExaminer(group, start, "cpu")
    known = batches(
        [cell.task for cell in group], [0, 1], split=Split.CALIBRATION, steps=1, batch=CALIBRATION_SAMPLES
    )
    assert torch.equal(examiner.calibration.x, next(known).x)
    assert not torch.equal(examiner.test.x[:, :8], examiner.calibration.x[:, :8])
    found = examiner.scores(end, Units.NEURONS)
    data, model = examiner.calibration, group[0].model
    seen = layered.passes(model, end, data.x)
    for layer in (1, 2):
        rows, before = end[f"w_o/{layer}"], start[f"w_o/{layer}"]
        assert torch.allclose(found[Score.MAGNITUDE][layer], rows.norm(dim=-1))
        assert torch.allclose(found[Score.LARGEST][layer], rows.norm(dim=-1))
        assert torch.allclose(found[Score.MOVEMENT][layer], (rows - before).norm(dim=-1))
        inputs = seen[layer - 1].mixed.norm(dim=1)
        assert torch.allclose(found[Score.ACTIVATION][layer], (rows.abs() @ inputs.unsqueeze(-1)).squeeze(-1))
    last = torch.relu(seen[-1].mixed @ end["w_o/2"].mT).view(2, -1, 10, model.hidden).mean(2) * end[
        "a"
    ].unsqueeze(1)
    parts = (
        (data.labels.unsqueeze(-1) * last).mean(1).abs()
    )  # relu is homogeneous: g·w is what the neuron adds
    assert torch.allclose(found[Score.TAYLOR_OUTPUT][2], parts, atol=1e-6)


def test_scores_of_heads_are_those_of_their_rows(trained):
    group, start, end = trained
    examiner = PruningExaminer(group, start, "cpu")
    found = examiner.scores(end, Units.HEADS)
    heads = end["w_v/1"].view(2, 2, 12, 24)
    assert torch.allclose(found[Score.MAGNITUDE][1], heads.flatten(2).norm(dim=-1))
    _, grads = layered.hinge_gradients(
        group[0].model, end, examiner.calibration.x, examiner.calibration.labels
    )
    by_hand = (heads * grads["w_v/1"].view(2, 2, 12, 24)).sum((2, 3)).abs()
    assert torch.allclose(found[Score.TAYLOR][1], by_hand)
    assert (by_hand > 1e-5).all()


def test_a_record_says_what_pruning_by_its_score_costs(trained):
    group, start, end = trained
    examiner = PruningExaminer(group, start, "cpu")
    records = examiner.records(end)[1]
    model = group[1].model
    for score in Score:
        worth = examiner.scores(end, Units.NEURONS)[score]
        few = dict(end)
        for layer in (1, 2):
            order = worth[layer][1].argsort(descending=score is Score.LARGEST)
            few[f"w_o/{layer}"] = end[f"w_o/{layer}"].clone()
            few[f"w_o/{layer}"][1, order[: round(0.5 * model.hidden)]] = 0
        test = examiner.test
        loss = patterns.hinge(layered.forward(model, few, test.x), test.labels)[1].mean()
        found = one_value(records, "loss", "pruning", units="neurons", score=score, fraction=0.5)
        assert found == pytest.approx(float(loss), abs=1e-6)
    table = pd.DataFrame(records)
    flat = table[table["measurement"] == "flat part"]
    assert set(zip(flat["units"], flat["score"], strict=True)) == {(u, s) for u in Units for s in Score}
    assert len(flat) == len(Units) * len(Score)
    pruned = table[table["measurement"] == "pruning"]
    assert set(pruned.loc[pruned["units"] == "heads", "fraction"]) == {0.5}
    assert one_value(records, "loss", "whole") == pytest.approx(float(examiner.loss(end)[1]))


FLAT = {
    Score.MAGNITUDE: 0.5, Score.MOVEMENT: 0.5, Score.ACTIVATION: 0.5, Score.TAYLOR: 0.5, Score.TAYLOR_OUTPUT: 0.5,
    Score.RANDOM: 0.3, Score.LARGEST: 0.1,
}  # fmt: skip


def world(claim, **changed):
    """A table in which every statement is true, but for the scores whose flat part is changed."""
    encoders = ["one layer"] if claim.experiment == "li2024/pruning" else ["plain", "full"]
    return pd.DataFrame(
        [
            {"measurement": "flat part", "encoder": encoder, "units": units.value, "score": score.value, "seed": seed,
             "cell": f"{encoder}{seed}", "trained": True, "flat": changed.get(score.name, flat)}
            for encoder in encoders for units in Units for score, flat in FLAT.items() for seed in SEEDS
        ]
    )  # fmt: skip


COUNTEREXAMPLES = {
    "pruning-magnitude": {"MOVEMENT": 0.6},
    "pruning-chance": {"RANDOM": 0.5},
    "pruning-encoder-neurons": {"TAYLOR_OUTPUT": 0.6},
}


def test_every_claim_has_a_counterexample():
    assert set(COUNTEREXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("name", sorted(BY_ID))
def test_a_claim_holds_where_it_is_true_and_fails_where_it_is_false(name):
    claim = BY_ID[name]
    assert judge(claim, world(claim)).verdict is Verdict.HOLDS
    table = world(claim, **COUNTEREXAMPLES[name])
    judgement = judge(claim, table)
    assert judgement.verdict is Verdict.FAILS, judgement.how
    assert judge(claim, table.assign(trained=False)).verdict is Verdict.UNDECIDED


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Both experiments at scale smoke: the tables."""
    return finish(experiments(Scale.SMOKE), tmp_path_factory.mktemp("pruning"))[1]


def test_the_smallest_scale_trains_and_tells_the_largest_from_the_smallest(smoke):
    table = smoke["li2024/pruning"]
    assert table["trained"].all()
    assert set(table["units"].dropna()) == {"neurons"}
    flat = table.groupby("score")["flat"].mean()
    assert flat[Score.MAGNITUDE] > flat[Score.RANDOM] > flat[Score.LARGEST]


def test_every_claim_has_its_figure(smoke):
    drawn = figures(Results(smoke, lambda key: {}))
    assert {claim.figure for claim in CLAIMS} == {figure.id for figure in drawn}
    for figure in drawn:
        assert all(panel.series for panel in figure.panels)
        assert set(figure.experiments) <= set(smoke)


def test_sizes_of_the_scales():
    sizes = {scale: [experiment.size for experiment in experiments(scale)] for scale in Scale}
    assert sizes == {Scale.SMOKE: [2, 4], Scale.QUICK: [12, 10], Scale.PAPER: [60, 60]}
