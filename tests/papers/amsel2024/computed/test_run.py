"""The computed experiments run in the lab: cells, tables, verdicts and figures, at the smallest scale."""

import pytest

from rankscope.figures.printed import save_static
from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.computed import CLAIMS, experiments, figures
from tests.papers.laboratory import finish

FAILS = {
    "exponent-moderate-errors",
    "touched-harmonics-any-values",
    "representer",
    "energy-decay",
    "random-features-figure",
    "tightness",
}
"""Statements of the talk that are not so; the corrections beside them are."""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Every experiment at scale smoke, in a store."""
    return finish(experiments(Scale.SMOKE), tmp_path_factory.mktemp("computed"))


def test_no_verdict_contradicts_what_is_known(smoke):
    _, tables = smoke
    for claim in CLAIMS:
        name = claim.id.removeprefix("amsel2024.")
        judgement = judge(claim, tables[claim.experiment])
        wrong = Verdict.HOLDS if name in FAILS else Verdict.FAILS
        assert judgement.verdict is not wrong, judgement.how
        if name in FAILS:
            assert judgement.verdict is Verdict.FAILS, judgement.how


def test_every_claim_has_its_figure_and_every_figure_is_drawn(smoke, tmp_path):
    store, tables = smoke
    drawn = figures(Results(tables, store.arrays_of()))
    assert {claim.figure for claim in CLAIMS} == {figure.id for figure in drawn}
    for figure in drawn:
        assert all(panel.series for panel in figure.panels)
        assert set(figure.experiments) <= set(tables)
    assert all(path.stat().st_size > 5_000 for path in save_static(drawn[0], tmp_path))


def test_a_claim_alone_has_its_figure_too(smoke):
    store, tables = smoke
    for claim in CLAIMS:
        alone = {claim.experiment: tables[claim.experiment]}
        assert [figure.id for figure in figures(Results(alone, store.arrays_of()))] == [claim.figure]


def test_the_store_says_float64(smoke):
    store, _ = smoke
    assert set(store.provenance(*experiments(Scale.SMOKE))["dtype"]) == {"float64"}


def test_sizes_of_the_scales():
    sizes = {scale: sum(experiment.size for experiment in experiments(scale)) for scale in Scale}
    assert sizes == {Scale.SMOKE: 51, Scale.QUICK: 118, Scale.PAPER: 231}


def test_a_cell_gives_the_same_records_again():
    for experiment in experiments(Scale.SMOKE):
        cell = experiment.cells()[0]
        if experiment.name.endswith(("majority", "random-features", "orthogonality")):
            once, again = (experiment.trainer.run([cell], Job())[0].records for _ in range(2))
            assert once == again
