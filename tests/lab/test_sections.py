"""A claim that cannot be judged is an error that names it: it never vanishes from the page."""

from dataclasses import replace

import pytest

from rankscope.catalogue import PAPERS
from rankscope.core import RankscopeError
from rankscope.figures.figure import Figure, Panel
from rankscope.lab import AtLeast, Check, Claims, Paper, Scale, Store, Verdict, run
from rankscope.lab.finding import Finding, Question
from rankscope.lab.paper import Results, Study
from rankscope.lab.replication import Point, Replication
from rankscope.lab.runner import schedule
from rankscope.lab.sections import SMOKE, sections
from rankscope.lab.selection import Selection
from rankscope.lab.statement import Ruling, Statement
from rankscope.lab.verdict_table import COLUMNS, verdict_table
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


@pytest.fixture(scope="module")
def second_in_part(tmp_path_factory):
    """The first experiment, and two of six cells of the second."""
    store = Store(tmp_path_factory.mktemp("two thirds"))
    first, second = experiments(Scale.SMOKE)
    piece = replace(second, grid=second.grid.where({"scale": ["2.0"]}))
    run(schedule([first, piece], store, "cpu"), store, "cpu")
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


def of_arrays(results):
    """A figure per experiment whose title is made of arrays."""
    sums = {
        name: sum(results.arrays(key)["values"].sum().item() for key in table["cell"])
        for name, table in results.tables.items()
    }
    return [replace(one, title=f"{sums[one.experiments[0]]:.4f}") for one in drawn(results)]


def telling():
    """The paper with everything that a paper may have, each made of the names of the tables that it is given."""
    say = lambda results: " ".join(results.tables)  # noqa: E731
    found = lambda results: [Finding("one", Question.HEADS, "yes", say(results), (), "", "", 2)]  # noqa: E731
    compared = lambda results: [  # noqa: E731
        Replication(say(results), "loss", "toy/first", "toy-first", [Point("there", 1.0, 1.05, 0.1)])
    ]
    lines = lambda scale: [Statement(str(scale), "", [name], "") for name in ("good", "other")]  # noqa: E731
    return replace(
        paper(experiment="second", figure="second"),
        figures=of_arrays,
        findings=found,
        replications=compared,
        statements=lines,
    )


def test_a_section_has_all_that_its_paper_makes_of_the_store(store):
    asked = telling()
    (section,) = sections(Selection([asked], Scale.QUICK), store)
    totals = [f"{store.table(one)['total'].sum():.4f}" for one in experiments(Scale.QUICK)]
    assert (section.paper, section.scale, section.suffix) == (asked, "quick", "")
    assert [figure.title for figure in section.figures] == totals
    assert section.provenance["experiment"].value_counts().to_dict() == {"toy/first": 6, "toy/second": 6}
    assert [one.sentence for one in section.findings] == ["toy/first toy/second"]
    assert [one.name for one in section.replications] == ["toy/first toy/second"]
    assert [(one.statement.source, one.ruling) for one in section.ruled] == [("quick", Ruling.HOLDS)] * 2
    assert (section.notes, section.unfinished) == ([], [])


def test_what_was_run_in_part_is_shown_and_not_judged(second_in_part):
    (section,) = sections(Selection([telling()], Scale.QUICK), second_in_part)
    assert [one.claim.id for one in section.judgements] == ["toy.good"]
    assert [(one.claim.id, one.so_far) for one in section.unfinished] == [("toy.other", ())]
    assert [figure.id for figure in section.figures] == ["toy-first", "toy-second"]
    assert section.notes == ["toy/second: 2 of 6 cells were run. Not run: scale 1.0, 3.0."]
    assert [one.sentence for one in section.findings] == ["toy/first"], "an answer is of whole grids"
    assert [one.name for one in section.replications] == ["toy/first toy/second"], "a number is of its point"
    assert [one.judgements[0].claim.id for one in section.ruled] == ["toy.good"]


def test_scale_smoke_finds_nothing_and_says_why(store):
    (section,) = sections(Selection([telling()], Scale.SMOKE), store)
    assert (section.findings, section.notes) == ((), [SMOKE])


def test_a_figure_that_needs_the_whole_grid_is_drawn_of_whole_grids(second_in_part, store):
    def whole(results):
        for table in results.tables.values():
            if len(table) < 6:
                raise KeyError("1.0")
        return drawn(results)

    asked = replace(telling(), figures=whole)
    (section,) = sections(Selection([asked], Scale.QUICK), second_in_part)
    assert [figure.id for figure in section.figures] == ["toy-first"]
    with pytest.raises(KeyError, match="no grid is in part"):
        sections(Selection([replace(asked, figures=lambda _: {}["no grid is in part"])], Scale.QUICK), store)


def test_verdicts_that_are_looked_at_more_often_must_be_surer(store):
    def at_its_limit(table):
        (check,) = positive(table)
        return [replace(check, bound=AtLeast(check.interval[0] - 1e-9))]

    for looks, verdict in ((1, Verdict.HOLDS), (2, Verdict.UNDECIDED)):
        (section,) = sections(Selection([paper(at_its_limit)], Scale.QUICK, looks=looks), store)
        assert section.judgements[1].verdict is verdict


def test_a_paper_without_a_claim_that_was_run_has_no_section(first_only):
    asked = Selection([paper()], Scale.QUICK, experiment="toy/second")
    assert sections(asked, first_only) == []


def test_what_is_asked_beyond_a_paper_stands_behind_the_papers_own():
    own, beyond = telling(), telling()
    study = Study(
        lambda scale: [replace(one, name=f"{one.name}, {scale}") for one in beyond.experiments(scale)],
        beyond.claims,
        drawn,
        beyond.findings,
    )
    both = replace(own, figures=drawn).with_studies(study)
    names = [one.name for one in both.experiments(Scale.QUICK)]
    assert names == ["toy/first", "toy/second", "toy/first, quick", "toy/second, quick"]
    assert both.claims == (*own.claims, *beyond.claims)
    results = Results({"toy/first": None}, lambda key: {})
    assert [figure.id for figure in both.figures(results)] == ["toy-first"] * 2
    assert [one.sentence for one in both.findings(results)] == ["toy/first"] * 2
    assert (both.name, both.replications) == (own.name, own.replications)


def test_the_table_of_verdicts_has_what_the_deciding_check_measured(store):
    made_twice = sections(Selection([paper(), paper()], Scale.SMOKE), store)
    table = verdict_table(made_twice)
    assert list(table.columns) == COLUMNS
    assert table["claim"].tolist() == ["toy.good", "toy.other"] * 2
    judgement = made_twice[0].judgements[1]
    low, high = judgement.decisive.interval
    assert low < judgement.decisive.mean < high
    assert tuple(table.iloc[1]) == (
        "toy.other",
        "holds",
        judgement.decisive.mean,
        low,
        high,
        "≥ 0",
        2,
        "the paper's statement",
        "It is so.",
    )
