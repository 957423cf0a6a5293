"""The maps: their sizes, what is read off them, and each claim in a world where it is true and in one where it is not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.lab import AtMost, Check, Job, Origin, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.studies.phases import CLAIMS, experiments, figures
from rankscope.studies.phases.border import crossings, place, setting
from rankscope.studies.phases.experiments import SurveyTrainer
from rankscope.studies.phases.maps import MAPS, NOISE, SIZES
from rankscope.studies.phases.shares import MAPPED, checks_of_settings, passes
from rankscope.tasks.patterns import CHUNK, batches
from rankscope.theory.updates.phases import drowning_noise, noise_border, outvoting_noise
from tests.papers.li2024.tidy import changed, trained
from tests.studies.tidy import chosen

BY_ID = {claim.id.removeprefix("li2024.phases-"): claim for claim in CLAIMS}
AT = {experiment.name.removeprefix("li2024/phases-"): experiment for experiment in experiments(Scale.QUICK)}


def test_over_a_thousand_trainings_on_maps_of_at_least_twelve_by_twelve():
    assert sum(experiment.size for experiment in AT.values()) > 1000
    for phase in MAPS.values():
        assert len(phase.x.values[Scale.QUICK]) >= 12
        assert len(phase.y.values[Scale.QUICK]) >= 12


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", list(MAPS))
def test_the_papers_setting_is_a_cell_of_every_map(name, scale):
    experiment = {e.name: e for e in experiments(scale)}[f"li2024/phases-{name}"]
    phase = MAPS[name]
    home = [
        c
        for c in experiment.cells()
        if c.point == ((phase.y.name, phase.y.here), (phase.x.name, phase.x.here))
    ]
    assert home
    changed = {key: value for key, value in phase.fields.items() if key in type(TASK).model_fields}
    assert home[0].task == TASK.replace(**changed)
    assert home[0].model == MODEL
    if name != "noise" and scale is not Scale.SMOKE:
        assert home[0].train == TRAIN


def test_a_cell_of_a_map_measures_what_the_papers_own_experiment_does():
    """Only the test set is another: all that the weights alone decide is equal, losses are near."""
    cells = [replace(cell, train=TRAIN.replace(steps=40)) for cell in AT["start"].cells()[:1]]
    mine = AT["start"].trainer.run(cells, Job())[0].records
    theirs = OneLayerTrainer().run(cells, Job())[0].records
    for ours, own in zip(mine, theirs, strict=True):
        assert ours.keys() == own.keys()
        for name, value in ours.items():
            if name in ("loss", "mass", "mass_start", "loss_without_small"):
                assert value == pytest.approx(own[name], abs=0.05), ours
            elif isinstance(value, float):
                assert value == pytest.approx(own[name], rel=1e-5, nan_ok=True), (name, ours)
            else:
                assert value == own[name]


def test_the_test_set_of_a_map_is_drawn_apart_from_what_is_trained_on():
    cell = AT["start"].cells()[0]
    start = patterns.init([cell.model], [cell.seed], tokens=cell.task.tokens)
    seen = SurveyTrainer(samples=256).examiner([cell], start, "cpu").test.x

    def drawn(split):
        parts = batches([cell.task], [cell.seed], split=split, steps=CHUNK, batch=256 // CHUNK)
        return torch.cat([part.x for part in parts], dim=1)

    assert torch.equal(seen, drawn(Split.TEST))
    assert not torch.isin(seen, drawn(Split.TRAIN)).all((-1, -2)).any()


def test_a_seed_passes_if_it_is_inside_every_bound():
    checks = [
        Check("a", (0.01, 0.03, 0.01), AtMost(LIKE_FULL)),
        Check("b", (0.0, 0.0, float("nan")), AtMost(1.0)),
    ]
    assert passes(checks).tolist() == [True, False, False]


def ratio(at, border):
    """σ₂/σ₃ of a world in which it falls through ten at that noise."""
    return 10.0 * border / at.noise if border > 0 else 5.0


def world(name, border=lambda at: noise_border(at, 10.0)):
    """A map on which every figure of the paper holds at every setting, but σ₂/σ₃ falls to ten at the border."""
    phase = MAPS[name]
    x, y = phase.x.values[Scale.QUICK], phase.y.values[Scale.QUICK]
    rows = []
    for b in y:
        for a in x:
            third = 0.8 / ratio(setting(phase, a, b), border(setting(phase, a, b)))
            for seed in range(3):
                training = {
                    phase.x.name: a,
                    phase.y.name: b,
                    "seed": seed,
                    "cell": f"{a}-{b}-{seed}",
                    "step": 300,
                }
                rows += [{**training, **row} for row in trained(third)]
    return pd.DataFrame(rows)


def spoilt(measurement, settings=None, at=None, **columns):
    """Makes a table in which a measurement has other values, at the settings that are chosen."""

    def spoil(table):
        rows = chosen(table, measurement, **(at or {}))
        return changed(table, rows & settings(table) if settings else rows, **columns)

    return spoil


def third(value, settings=None):
    return spoilt("spectrum", settings, {"matrix": "k", "place": 3}, sigma=value)


RANK_TWO = third(0.01)
COUNTEREXAMPLES = {
    "border": third(lambda t: t["sigma"] * 8),
    "start": spoilt("truncation", lambda t: t["scale"] < 0.06, {"rank": 1}, mass=0.5),
    "together": spoilt("neurons", lambda t: t["neurons"] >= 40, {"of": "o"}, separation=0.7),
}


@pytest.mark.parametrize("name", list(BY_ID))
def test_each_claim_holds_where_it_is_true_and_fails_where_not(name):
    claim = BY_ID[name]
    table = world(claim.experiment.removeprefix("li2024/phases-"))
    if name == "start":
        table = RANK_TWO(table)
    assert judge(claim, table).verdict is Verdict.HOLDS
    assert judge(claim, COUNTEREXAMPLES[name](table)).verdict is Verdict.FAILS


def test_the_drowning_alone_is_not_the_border_where_votes_are_lost():
    assert (
        judge(BY_ID["border"], world("noise", lambda at: drowning_noise(at, 10.0))).verdict is Verdict.FAILS
    )


def test_a_border_is_found_where_the_ratio_crosses():
    levels = list(NOISE.x.values[Scale.QUICK])
    exact = 0.23
    found = crossings(np.array([[10.0 * exact / level for level in levels]]), 10.0)[0]
    assert found == pytest.approx(place(levels, exact), abs=0.02)


def test_the_checks_of_a_setting_are_those_of_its_own_rows():
    table = world("noise")
    whole = chosen(table, "whole")
    table = changed(table, whole, loss=lambda t: np.random.default_rng(0).random(len(t)))
    shuffled = table.sample(frac=1.0, random_state=0)
    found = checks_of_settings(NOISE, shuffled, MAPPED["fig1a"])
    x, y = NOISE.x.seen(table), NOISE.y.seen(table)
    for row, column in ((0, 0), (3, 7), (11, 11)):
        part = table[(table["noise"] == x[column]) & (table["relevant"] == y[row])]
        assert found[row][column] == MAPPED["fig1a"].checks(part)


def test_figures_show_the_share_of_seeds_the_papers_cell_and_the_line():
    one = spoilt("whole", lambda t: (t["seed"] == 0) & (t["noise"] == 0.1) & (t["relevant"] == 0.4), loss=0.5)
    table = one(world("noise"))
    (figure,) = figures(Results({"li2024/phases-noise": table}, lambda key: {}))
    assert [panel.title for panel in figure.panels] == [claim.source for claim in MAPPED.values()]
    heat_map = figure.panels[0].heat_map
    column, row = heat_map.here
    assert heat_map.x[column] == "0.1"
    assert heat_map.y[row] == "0.4"
    assert heat_map.values[row][column] == pytest.approx(2 / 3)
    assert "holds at 2 of 3 seeds" in heat_map.text[row][column]
    assert float(heat_map.y[0]) > float(heat_map.y[-1]), "the larger share stands higher"
    lines = {panel.title: len(panel.heat_map.lines) for panel in figure.panels}
    assert lines["Figure 2"] == 2
    assert sum(lines.values()) == 2
    levels = NOISE.x.seen(table)
    for line, border in zip(
        figure.panels[2].heat_map.lines, (lambda at: drowning_noise(at, 10.0), outvoting_noise), strict=True
    ):
        nearest = int(np.argmin(np.abs(np.array(line.y) - row)))
        assert line.x[nearest] == pytest.approx(place(levels, border(setting(NOISE, 0.1, 0.4))), abs=0.3), (
            line.name
        )


def test_what_is_asked_of_maps_goes_beyond_the_paper():
    assert {claim.origin for claim in CLAIMS} == {Origin.BEYOND}


def test_a_map_without_a_line_has_none():
    (figure,) = figures(Results({"li2024/phases-sizes": world("sizes")}, lambda key: {}))
    assert SIZES.title in figure.title
    assert not any(panel.heat_map.lines for panel in figure.panels)
