"""Rank in context on planted tables, and the bound behind its prediction by simulation."""

import pandas as pd
import pytest
import torch

from rankscope.lab import Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.papers.garg2022.experiments import experiments
from rankscope.studies.in_context import STUDY
from rankscope.studies.in_context.claims import CLAIMS
from rankscope.studies.in_context.floors import ALL, ALONE, LAYER, floor, with_floors

PAPER = {one.name.partition("/")[2]: one for one in experiments(Scale.PAPER)}
BY_NAME = {claim.name: claim for claim in CLAIMS}


def table(name, error=lambda model: 0.0, energy_rank=lambda model: 1):
    rows = []
    for cell in PAPER[name].cells():
        model, shake = cell.model, 1 + 0.001 * cell.seed
        own = {
            **dict(cell.point), "seed": cell.seed, "cell": cell.key(), "dim": model.dim, "layers": model.layers,
            "rank": model.rank, "heads": model.heads, "input_dim": 20, "step": cell.train.steps,
        }  # fmt: skip
        rows += [
            own | {"measurement": "errors", "shift": "none", "examples": 40, "error": error(model) * shake},
            own | {"measurement": "whole", "transition": 100.0, "excess": 0.1, "halfway": 0.1, "whole_task": 30_000.0},
            own | {"measurement": "head", "effective_rank": 1.0, "energy_rank": energy_rank(model) * shake,
                   "input_rank": 1.0, "energy_rank_before": 2.0},
            own | {"measurement": "layer", "together": 3.0},
        ]  # fmt: skip
    return pd.DataFrame(rows)


def added(model, name):
    return {ALONE: model.rank, LAYER: model.rank * model.heads, ALL: model.rank * model.heads * model.layers}[
        name
    ]


@pytest.mark.parametrize(
    ("claim", "name"), [("floor-of-a-head", ALONE), ("floor-of-a-layer", LAYER), ("floor-of-all-layers", ALL)]
)
def test_a_floor_is_kept_or_not(claim, name):
    kept = table("apart", lambda model: 1.01 * floor(added(model, name), 20))
    broken = table("apart", lambda model: 0.8 * floor(added(model, name), 20))
    assert judge(BY_NAME[claim], kept).verdict is Verdict.HOLDS
    assert judge(BY_NAME[claim], kept.assign(halfway=0.5)).verdict is Verdict.UNDECIDED, "it may still fall"
    assert judge(BY_NAME[claim], broken.assign(halfway=0.5)).verdict is Verdict.FAILS, "it is below already"
    assert judge(BY_NAME[claim], broken).verdict is Verdict.FAILS


def test_a_head_uses_what_inputs_ask_for():
    assert judge(BY_NAME["rank-used"], table("heads", energy_rank=lambda model: 20)).verdict is Verdict.HOLDS
    assert judge(BY_NAME["rank-used"], table("heads", energy_rank=lambda model: 2)).verdict is Verdict.FAILS
    assert (
        judge(BY_NAME["rank-used"], table("heads", energy_rank=lambda model: model.rank)).verdict
        is Verdict.FAILS
    )


def test_predictions_of_a_decoder():
    rows = with_floors(table("apart"))
    row = rows[(rows["rank"] == 1) & (rows["heads"] == 4)].iloc[0]
    assert (row[ALONE], row[LAYER], row[ALL]) == pytest.approx((0.95, 0.8, 0.4))


def test_linear_attention_of_low_rank_keeps_the_floor_and_comes_near_it():
    """Gradient steps on least squares, seen through r of the input's dimensions, with many examples."""
    draw = torch.Generator().manual_seed(0)
    dims, rank = 8, 3
    xs, w, x = (
        torch.randn(*shape, generator=draw) for shape in ((400, 200, dims), (400, dims, 1), (400, dims, 1))
    )
    a = torch.linalg.qr(torch.randn(dims, rank, generator=draw)).Q
    left, answer = xs @ w, torch.zeros(400, 1)
    for _ in range(10):  # a layer each: the same r directions
        step = a @ a.mT @ xs.mT @ left / 200
        answer, left = answer + (x * step).sum(1), left - xs @ step
    error = float((answer - (x * w).sum(1)).square().mean() / dims)
    assert error == pytest.approx(floor(rank, dims), abs=0.12)


def test_its_figures():
    results = Results({f"garg2022/{name}": table(name) for name in ("heads", "apart")}, lambda key: {})
    floors, used = STUDY.figures(results)
    assert (floors.id, used.id) == ("garg2022-floor", "garg2022-rank-used")
    assert "The loss of all trainings has come to rest." in floors.caption
    assert floors.panels[0].series[1].x == [*range(1, 21), 64], (
        "not straight from rank 16 to 64, where the floor is 0"
    )
    assert [series.name for series in floors.panels[0].series] == [
        "trained", "floor: one head", "floor: all heads of a layer", "floor: all heads of all layers",
    ]  # fmt: skip
    assert STUDY.experiments(Scale.QUICK) == []
