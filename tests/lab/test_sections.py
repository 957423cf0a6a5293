"""A claim that cannot be judged is an error that names it: it never vanishes from the page."""

from dataclasses import replace

import pytest

from rankscope.catalogue import PAPERS
from rankscope.core import RankscopeError
from rankscope.figures.figure import Figure, Panel
from rankscope.lab import AtLeast, Check, Claims, Paper, Scale, Store, run
from rankscope.lab.runner import schedule
from rankscope.lab.sections import sections
from rankscope.lab.selection import Selection
from tests.lab.toy import toy


def experiments(scale):
    return [replace(toy(6), name="toy/first"), replace(toy(6), name="toy/second")]


def drawn(results):
    return [Figure(f"toy-{name[4:]}", "", "", "", [Panel("", "", "")], (name,)) for name in results.tables]


def positive(table):
    return [Check("total", tuple(table.groupby("seed")["total"].min()), AtLeast(0.0))]


def paper(checks=positive, **named):
    claims = Claims("toy")
    names = {"experiment": "first", "figure": "first", **named}
    claims("good", source="Figure 1", says="It is so.", experiment="first", figure="first")(positive)
    claims("other", source="Figure 2", says="It is so.", **names)(checks)
    return Paper("toy", "Toy", "", experiments, claims, drawn, "")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("run"))
    run(schedule(experiments(Scale.SMOKE), store, "cpu"), store, "cpu")
    return store


@pytest.fixture(scope="module")
def first_only(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("part"))
    run(schedule(experiments(Scale.SMOKE)[:1], store, "cpu"), store, "cpu")
    return store


def made(paper, store, **asked):
    (section,) = sections(Selection([paper], Scale.SMOKE, **asked), store)
    return [judgement.claim.id for judgement in section.judgements]


def test_claims_of_known_experiments_and_figures_are_judged(store):
    assert made(paper(), store) == ["toy.good", "toy.other"]


def test_a_claim_of_an_unknown_experiment_is_an_error_that_names_it(store):
    with pytest.raises(RankscopeError, match=r"'toy\.other' names no experiment .*'toy/frist'.*'toy/first'"):
        made(paper(experiment="frist"), store)


def test_a_claim_of_a_figure_that_is_not_drawn_is_an_error_that_names_it(store):
    with pytest.raises(RankscopeError, match=r"'toy\.other' names a figure .*'toy-frist'.*'toy-first'"):
        made(paper(figure="frist"), store)


def test_while_an_experiment_is_not_run_its_figure_may_be_missing(store, first_only):
    elsewhere = paper(figure="second")
    assert made(elsewhere, store) == ["toy.good", "toy.other"]
    assert made(elsewhere, first_only) == ["toy.good", "toy.other"]
    assert made(elsewhere, store, only=("toy.other",)) == ["toy.other"]


def test_a_check_that_raises_is_an_error_that_names_the_claim(store):
    with pytest.raises(RankscopeError, match=r"claim 'toy\.other'.*toy/first: KeyError: 'totl'") as caught:
        made(paper(lambda table: table["totl"]), store)
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_cannot_be_run_here_is_named_with_why_and_its_claims_wait(first_only):
    def lacking(scale):
        return [replace(one, requires=lambda: "fetch it") for one in experiments(scale)]

    asked = replace(paper(experiment="second", figure="second"), experiments=lacking)
    (section,) = sections(Selection([asked], Scale.QUICK), first_only)
    assert section.notes == ["toy/second is not run: fetch it."]
    assert [one.claim.id for one in section.unfinished] == ["toy.other"]
    assert [one.claim.id for one in section.judgements] == ["toy.good"], "what was run elsewhere is shown"


@pytest.mark.parametrize("scale", list(Scale))
def test_every_claim_names_an_experiment_of_its_paper(scale):
    for one in PAPERS.values():
        assert {claim.experiment for claim in one.claims} <= {e.name for e in one.experiments(scale)}
