"""Depth against the number of points on planted tables: every claim holds, and fails where its own number is changed."""

import pandas as pd
import pytest

from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.many_points import STUDY
from rankscope.studies.many_points.claims import CLAIMS
from rankscope.studies.many_points.experiments import POINT_SIZES, experiments
from rankscope.studies.many_points.figures import figures
from rankscope.tasks.neighbors import multiple_error

QUICK = experiments(Scale.QUICK)[0]
BY_NAME = {claim.name: claim for claim in CLAIMS}


def table():
    """Full rank solves everything; low rank fails, and depth helps it with the fewest points alone."""
    rows = []
    for cell in QUICK.cells():
        place, model = dict(cell.point), cell.model
        helped = model.layers > 1 and cell.task.tokens == 3
        rows.append(
            place
            | {
                "seed": cell.seed,
                "dim": model.dim,
                "rank": model.rank,
                "layers": model.layers,
                "tokens": cell.task.tokens,
                "without_attention": multiple_error(cell.task),
                "error": (0.02 if model.rank == model.dim else 0.4 if helped else 0.7) + 0.001 * cell.seed,
            }
        )
    return pd.DataFrame(rows)


def changed(rows, error):
    made = table()
    made.loc[rows(made), "error"] = error
    return made


def test_every_claim_holds_on_a_table_that_shows_it():
    for claim in CLAIMS:
        assert judge(claim, table()).verdict is Verdict.HOLDS, claim.id


def test_each_claim_fails_where_its_own_number_is_wrong():
    solved = changed(lambda t: (t["tokens"] == 12) & (t["layers"] == 3), 0.05)
    assert judge(BY_NAME["many-points-fail"], solved).verdict is Verdict.FAILS
    late = changed(lambda t: (t["tokens"] == 12) & (t["rank"] == 8) & (t["layers"] == 1), 0.3)
    assert judge(BY_NAME["many-points-solved"], late).verdict is Verdict.FAILS
    helped = changed(lambda t: (t["tokens"] == 12) & (t["rank"] == 1) & (t["layers"] == 3), 0.3)
    assert judge(BY_NAME["many-points-depth"], helped).verdict is Verdict.FAILS


def test_ranks_that_depth_does_not_help_have_nothing_to_lose():
    claim = BY_NAME["many-points-depth"]
    a_little = changed(lambda t: (t["tokens"] == 3) & (t["rank"] == 1) & (t["layers"] == 3), 0.66)
    assert judge(claim, a_little).verdict is Verdict.HOLDS, "all of 6% is lost"
    unhelped = changed(lambda t: (t["tokens"] == 3) & (t["rank"] == 1) & (t["layers"] == 3), 0.71)
    assert judge(claim, unhelped).verdict is Verdict.UNDECIDED
    assert "depth helps no rank" in judge(claim, unhelped).how


def test_shallow_encoders_do_not_decide_whether_low_rank_fails():
    shallow = changed(lambda t: (t["rank"] == 1) & (t["layers"] == 1), 0.05)
    assert judge(BY_NAME["many-points-fail"], shallow).verdict is Verdict.HOLDS


@pytest.mark.parametrize("scale", Scale)
def test_a_batch_has_as_many_queries_whatever_the_number_of_points(scale):
    (experiment,) = STUDY.experiments(scale)
    assert {cell.task.tokens * cell.train.batch for cell in experiment.cells()} == {
        POINT_SIZES[scale].queries
    }


def test_the_figures_show_every_depth_and_the_ratio_of_deep_to_shallow():
    errors, depth = figures(Results({"amsel2024/many-points": table()}, lambda key: {}))
    assert [panel.title for panel in errors.panels] == ["1 layer", "3 layers"]
    assert all(panel.series[-1].name == "without attention" for panel in errors.panels)
    low = next(series for series in depth.panels[0].series if series.name == "rank 1")
    assert [round(y, 2) for y in low.y] == [0.57, 1.0, 1.0]
    assert figures(Results({}, lambda key: {})) == []


def test_a_smoke_run_trains_few_and_many_points():
    (smoke,) = STUDY.experiments(Scale.SMOKE)
    group = [cell for cell in smoke.cells() if cell.task.tokens == 6 and cell.model.layers == 3]
    found = [outcome.records[0] for outcome in smoke.trainer.run(group, Job())]
    assert len(found) == 4
    assert all(0 < record["error"] < 3 for record in found)
