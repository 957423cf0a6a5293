"""How large what a figure shows was, in words."""

import json

import pandas as pd
import pytest

from rankscope.figures.figure import Figure, Panel
from rankscope.lab.sizes import sized, sizes


def cells(*settings, seeds=1, experiment="paper/one"):
    """Every setting (task, model) with so many seeds."""
    rows = [
        (experiment, json.dumps({"task": task, "model": model}), seed)
        for task, model in settings
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["experiment", "settings", "seed"])


def test_what_all_cells_share_is_told_and_what_differs_is_not():
    one, two = (
        ({"tokens": 5, "patterns": 1}, {"dim": 8, "layers": 1}),
        ({"tokens": 5}, {"dim": 8, "layers": 3}),
    )
    assert sizes("quick", cells(one, seeds=3)) == (
        "at small sizes (scale quick): dim 8, 5 tokens, 1 pattern, 1 layer, 3 seeds"
    )
    assert sizes("paper", cells(one, two)) == "at the paper's sizes: dim 8, 5 tokens, 1 seed"
    assert sizes("smoke", cells(({"tokens": 1000}, {}), seeds=2)) == "at scale smoke: 1,000 tokens, 2 seeds"


def test_a_task_says_the_size_where_a_model_says_another():
    assert sizes("quick", cells(({"dim": 4}, {"dim": 8}))) == "at small sizes (scale quick): dim 4, 1 seed"


def test_seeds_are_counted_per_setting_of_an_experiment():
    model = {}, {"dim": 8}
    other = {}, {"dim": 8, "layers": 2}
    found = sizes("quick", pd.concat([cells(model, seeds=3), cells(other, seeds=2)]))
    assert found == "at small sizes (scale quick): dim 8, 2 to 3 seeds"
    both = pd.concat([cells(model, seeds=2), cells(model, seeds=2, experiment="paper/two")])
    assert sizes("quick", both).endswith("dim 8, 2 seeds")


def test_what_is_computed_once_has_no_seeds():
    assert sizes("quick", cells(({"dim": 8}, {}))) == "at small sizes (scale quick): dim 8"
    assert sizes("quick", cells(({"dim": 8}, {}), seeds=2)) == "at small sizes (scale quick): dim 8, 2 seeds"


@pytest.mark.parametrize("scale", ["quick", "paper", "smoke"])
def test_without_cells_only_the_scale_is_told(scale):
    told = {
        "quick": "at small sizes (scale quick)",
        "paper": "at the paper's sizes",
        "smoke": "at scale smoke",
    }
    assert sizes(scale, cells()) == told[scale]


def test_a_figure_has_the_sizes_of_its_own_experiments_and_a_survey_none():
    def figure(*experiments):
        panel = Panel("panel", "x", "y", [])
        return Figure(id="f", title="t", paper_says="", caption="", panels=[panel], experiments=experiments)

    known = pd.concat(
        [cells(({}, {"dim": 8}), seeds=2), cells(({}, {"dim": 16}), seeds=5, experiment="paper/two")]
    )
    drawn = sized([figure("paper/two"), figure(), figure("paper/one", "paper/two")], "quick", known)
    assert [one.sizes for one in drawn] == [
        "at small sizes (scale quick): dim 16, 5 seeds",
        figure().sizes,
        "at small sizes (scale quick): 2 to 5 seeds",
    ]
    assert "scale" not in figure().sizes
