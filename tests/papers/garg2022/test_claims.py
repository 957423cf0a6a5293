"""garg2022's claims on planted tables: each holds where its own number says so, fails where it does not, or waits."""

import math

import pandas as pd
import pytest

from rankscope.lab import Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.lab.partial import Part, judged
from rankscope.lab.section import Unfinished
from rankscope.papers.garg2022 import PAPER
from rankscope.papers.garg2022.claims import CLAIMS
from rankscope.papers.garg2022.experiments import experiments
from rankscope.papers.garg2022.quantities import doublings, transitions
from rankscope.tasks.in_context_baselines import least_squares_error

QUICK = {one.name.partition("/")[2]: one for one in experiments(Scale.QUICK)}
BY_NAME = {claim.name: claim for claim in CLAIMS}


def table(name, error, transition, cells=None):
    """Rows of every cell of an experiment: errors and transitions are functions of its model, and a little of its seed."""
    rows = []
    for cell in cells or QUICK[name].cells():
        model, task, shake = cell.model, cell.task, 1 + 0.01 * cell.seed
        own = {
            **dict(cell.point), "seed": cell.seed, "cell": cell.key(), "dim": model.dim, "layers": model.layers,
            "rank": model.rank, "heads": model.heads, "input_dim": task.input_dim, "functions": task.functions.value,
            "step": cell.train.steps,
        }  # fmt: skip
        for examples in range(task.points):
            exact = least_squares_error(examples, task.input_dim)
            rows += [
                own | {"measurement": "errors", "shift": shift, "examples": examples, "least_squares": exact,
                       "error": exact + error(model) * shake}
                for shift in ("none", "scaled")
            ]  # fmt: skip
        rest = {"excess": 0.1, "halfway": 0.12, "whole_task": 0.0}
        rows.append(own | {"measurement": "whole", "transition": transition(model) * shake, **rest})
        rows += [own | {"measurement": "loss", "step": step, "excess": 1 / step} for step in (1, 2)]
        ranks = dict.fromkeys(
            ("effective_rank", "energy_rank", "input_rank", "energy_rank_before"), 1.5 * shake
        )
        rows.append(own | {"measurement": "head", "layer": 0, "head": 0, **ranks})
        rows.append(own | {"measurement": "layer", "layer": 0, "together": 2.0})
    return pd.DataFrame(rows)


def world(experiment):
    """A table on which every claim of an experiment can be judged."""
    name = experiment.partition("/")[2]
    return table(name, lambda model: 0.01 * model.heads, lambda model: 100 + model.heads)


def verdict(claim, *planted):
    return judge(BY_NAME[claim], table(BY_NAME[claim].experiment.partition("/")[2], *planted)).verdict


@pytest.mark.parametrize(
    ("claim", "right", "wrong"),
    [
        ("least-squares", (lambda model: 0.01, lambda model: 100), (lambda model: 0.2, lambda model: 100)),
        *(
            (
                claim,
                (lambda model: 0.01 * model.heads, lambda model: 100 + model.heads),
                (lambda model: 0.01 / model.heads, lambda model: 200 - model.heads),
            )
            for claim in ("more-heads", "more-heads-later", "more-heads-settled", "other-classes")
        ),
        *(
            ("heads-are-time", (lambda model: 0.01, lambda model: 100 + 20 * model.heads), wrong)
            for wrong in (
                (lambda model: 0.01 * model.heads, lambda model: 100 + 20 * model.heads),
                (lambda model: 0.01, lambda model: 100 + model.heads / 10),
            )
        ),
        *(
            (
                claim,
                (
                    lambda model: 1 / model.rank**2 / model.heads,
                    lambda model: 400 / model.rank**2 / model.heads,
                ),
                (
                    lambda model: 1 / model.heads**2 / model.rank,
                    lambda model: 400 / model.heads**2 / model.rank,
                ),
            )
            for claim in ("rank-counts", "rank-counts-in-time")
        ),
    ],
)
def test_a_claim_holds_and_fails_by_its_own_number(claim, right, wrong):
    assert verdict(claim, *right) is Verdict.HOLDS
    assert verdict(claim, *wrong) is Verdict.FAILS


def test_what_is_not_long_after_its_transition_says_nothing_about_errors_long_after_it():
    steps = QUICK["heads"].train.steps
    late = (lambda model: 0.01 * model.heads, lambda model: 100 if model.heads == 1 else 0.6 * steps)
    assert verdict("more-heads-settled", *late) is Verdict.UNDECIDED
    assert verdict("least-squares", *late) is Verdict.UNDECIDED
    assert verdict("more-heads", *late) is Verdict.HOLDS


def test_what_has_not_come_to_rest_says_nothing_about_how_it_ends():
    planted = table("heads", lambda model: 0.01 * model.heads, lambda model: 100)
    assert transitions(planted)["settled"].all()
    for late in ({"halfway": 0.2}, {"whole_task": 0.6 * planted["steps"].max()}, {"whole_task": math.nan}):
        assert not transitions(planted.assign(**late))["settled"].any(), late
        assert not transitions(planted.assign(**late))["over"].any(), late


def test_seeds_that_disagree_about_the_side_are_not_apart():
    planted = table("heads", lambda model: 0.01, lambda model: 100)
    sides = {seed: 4.0 if seed % 2 else 0.25 for seed in planted["seed"].unique()}
    many = planted["heads"] == planted["heads"].max()
    scattered = planted.assign(
        transition=planted["transition"].where(~many, planted["transition"] * planted["seed"].map(sides))
    )
    assert judge(BY_NAME["heads-are-time"], scattered).verdict is not Verdict.HOLDS


def test_one_bad_number_of_examples_is_not_near_least_squares():
    planted = table("heads", lambda model: 0.0, lambda model: 100)
    assert judge(BY_NAME["least-squares"], planted).verdict is Verdict.HOLDS
    planted.loc[planted["examples"] == 2, "error"] += 0.2
    assert judge(BY_NAME["least-squares"], planted).verdict is Verdict.FAILS


def test_rank_and_heads_are_compared_over_one_factor():
    """Heads span 1 to 16 and ranks 1 to 64: what ranks beyond 16 gain, or do not, is not asked."""
    grid = {one.name.partition("/")[2]: one for one in experiments(Scale.PAPER)}["apart"]

    def found(of_rank):
        planted = table(
            "apart", lambda model: of_rank(model.rank) / model.heads**0.9, lambda _: 100, grid.cells()
        )
        return judge(BY_NAME["rank-counts"], planted).verdict

    assert found(lambda rank: 1 / min(rank, 16)) is Verdict.HOLDS
    assert found(lambda rank: rank**-0.5 / (1 if rank <= 16 else 1000)) is Verdict.FAILS


def test_two_trainings_without_a_transition_are_not_compared_and_one_is():
    never = (lambda model: 0.01, lambda model: math.nan)
    assert verdict("more-heads-later", *never) is Verdict.UNDECIDED
    assert (
        verdict("other-classes", lambda model: 0.01 / model.heads, lambda model: math.nan)
        is Verdict.UNDECIDED
    )
    one = table("heads", lambda model: 0.01, lambda model: 100 if model.heads == 1 else math.nan)
    assert all(value > 3 for value in doublings(transitions(one), "reached")), "more than 8 times as late"


def test_every_figure_and_the_finding_are_made_of_such_tables():
    planted = (lambda model: 0.01 * model.heads, lambda model: 100 + model.heads)
    tables = {f"garg2022/{name}": table(name, *planted) for name in ("heads", "apart", "classes")}
    results = Results(tables, lambda key: {})
    ids = {figure.id for figure in PAPER.figures(results)}
    assert ids == {claim.figure for claim in CLAIMS} | {"garg2022-heads-shifts"}
    (finding,) = PAPER.findings(results)
    assert finding.answer == "Where a decoder learns in context, they do not."
    assert (
        "16 heads of rank 1 have an error of 0.16, and 1 of rank 16, with as many parameters, of 0.01 "
        in finding.sentence
    )
    assert finding.sentence.endswith(
        "the solution appears by step 118 with 16, and by step 103 with 1, and long after it they err by 0.16 and 0.01."
    )
    assert set(finding.claims) <= {claim.id for claim in CLAIMS}


def test_the_finding_says_who_never_came_to_the_solution():
    late = table(
        "heads", lambda model: 0.01, lambda model: math.nan if model.heads == 1 else 100 + model.heads
    )
    (finding,) = PAPER.findings(Results({"garg2022/heads": late}, lambda key: {}))
    assert finding.sentence.endswith(
        "by step 118 with 16, and never with 1, and how they end was not seen for both."
    )


def test_of_an_unfinished_run_one_size_is_shown_and_judged_as_far_as_it_goes():
    whole = experiments(Scale.PAPER)[0]
    done = [
        cell
        for cell in whole.cells()
        if cell.model.dim == 64 or (cell.model.dim == 256 and cell.train.steps == 50_000 and cell.seed == 0)
    ]
    missing = [cell for cell in whole.cells() if cell not in done]
    planted = table("heads", lambda model: 0.001 * model.heads, lambda model: 1000 + model.heads, done)
    for name in ("least-squares", "more-heads", "more-heads-later", "more-heads-settled", "heads-are-time"):
        found = judged(BY_NAME[name], Part(whole, planted, missing))
        assert isinstance(found, Unfinished)
        assert found.so_far
        assert all("tiny" in check.what for check in found.so_far), name
    results = Results({"garg2022/heads": planted}, lambda key: {})
    heads, *_ = PAPER.figures(results)
    assert [panel.title for panel in heads.panels] == [
        "dim 64, 3 layers, after 500,000 steps",
        "dim 64, 3 layers, 40 examples",
        "dim 256, 12 layers, after 50,000 steps",
        "dim 256, 12 layers, 40 examples",
    ]
    assert [series.name for series in heads.panels[1].series] == [
        f"{steps:,} steps" for steps in (50_000, 100_000, 200_000, 500_000)
    ]
    (finding,) = PAPER.findings(results)
    assert "A decoder of 3 layers" in finding.sentence, (
        "one seed of a larger size, for a tenth of the steps, says less"
    )
    assert "After 500,000 steps" in finding.sentence
