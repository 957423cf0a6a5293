"""Memory against rule on planted tables: every claim holds, and fails where its own number is changed."""

import pandas as pd
import pytest

from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies.memory import STUDY
from rankscope.studies.memory.claims import CLAIMS
from rankscope.studies.memory.experiments import FRESH, MEMORY_SIZES, experiments
from rankscope.studies.memory.figures import figures
from rankscope.studies.memory.measures import with_memory
from rankscope.theory.memory import memory_border

QUICK = experiments(Scale.QUICK)[0]
BY_NAME = {claim.name: claim for claim in CLAIMS}


def table(**changes):
    """A model that recalls all of few batches and follows the rule on many; full rank follows it from the start."""
    rows = []
    for cell in QUICK.cells():
        place = dict(cell.point)
        fresh = place["distinct"] == FRESH
        batches = MEMORY_SIZES[Scale.QUICK].steps if fresh else int(place["distinct"])
        full = cell.model.rank == cell.model.dim
        few = batches <= memory_border(cell.model.parameters, answers=64 * 5, options=4)
        rows.append(
            place
            | {
                "seed": cell.seed,
                "cell": cell.key(),
                "dim": cell.model.dim,
                "rank": cell.model.rank,
                "answered": 0.95 if full else 0.35 if few else 0.6,
                "recalled": float("nan") if fresh else 1.0 if few else 0.601,
                "all_parameters": cell.model.parameters,
            }
        )
    return pd.DataFrame(rows).assign(**changes)


def test_every_claim_holds_on_a_table_that_shows_it():
    for claim in CLAIMS:
        assert judge(claim, table()).verdict is Verdict.HOLDS, claim.id


def test_each_claim_fails_where_its_own_number_is_wrong():
    forgets = table()
    forgets.loc[forgets["distinct"].isin(["1", "2", "4"]), "recalled"] = 0.4
    assert judge(BY_NAME["memory-border"], forgets).verdict is Verdict.FAILS
    still = table()
    still.loc[still["distinct"] == "64", "recalled"] = 0.9
    assert judge(BY_NAME["memory-border"], still).verdict is Verdict.FAILS
    tiny = table(all_parameters=100)
    assert judge(BY_NAME["memory-capacity"], tiny).verdict is Verdict.FAILS
    assert judge(BY_NAME["memory-rule"], table(answered=0.35)).verdict is Verdict.FAILS


def test_bits_are_counted_over_all_distinct_batches():
    known = with_memory(table())
    row = known[(known["distinct"] == "4") & (known["rank"] == 1)].iloc[0]
    questions = 4 * 64 * 5
    assert row["content"] * row["all_parameters"] == pytest.approx(questions * 2)
    assert 0 < row["bits"] < row["content"]
    assert (known[known["distinct"] == FRESH]["gap"] == 0).all()
    assert (known[known["distinct"] == FRESH]["batches"] == MEMORY_SIZES[Scale.QUICK].steps).all()


def test_the_figures_have_a_border_in_every_panel_and_the_map_a_line():
    border, bits, heat = figures(Results({"amsel2024/memory": table()}, lambda key: {}))
    assert all(panel.series[-1].name == "two bits per parameter" for panel in (*border.panels, *bits.panels))
    line = heat.panels[0].heat_map.lines[0]
    assert len(heat.panels[0].heat_map.y) == 4
    assert line.y == [-0.5, 0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.5], "upright through every row"
    assert [line.x[place] for place in (0, 2, 4, 6)] == [line.x[place] for place in (1, 3, 5, 7)]
    assert figures(Results({}, lambda key: {})) == []


def test_a_shape_is_one_stack_at_every_number_of_batches_and_a_smoke_run_records_what_is_recalled():
    (smoke,) = STUDY.experiments(Scale.SMOKE)
    cells = smoke.cells()
    assert len({smoke.trainer.shape_key(cell) for cell in cells}) == 2
    group = [cell for cell in cells if cell.model.layers == 1 and cell.seed == 0][:3]
    found = [outcome.records[0] for outcome in smoke.trainer.run(group, Job())]
    assert [("recalled" in record) for record in found] == [True, True, False]
