"""Experiments that separate one thing from another: what they change, and that figure 1 shows them as points of their own."""

import pytest

from rankscope.figures.figure import Mark
from rankscope.lab import Scale
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.published import published
from rankscope.papers.amsel2024.recipe import Start


def test_the_control_changes_the_batches_and_nothing_else():
    by_name = {one.name.partition("/")[2]: one for one in experiments(Scale.PAPER)}
    control, repeated = by_name["authors-recipe"], by_name["repeated"]
    assert control.train == repeated.train.replace(distinct_batches=None)
    assert (control.model, control.task) == (repeated.model, repeated.task)
    assert control.size == 7 * 2 * 2 * 2
    assert all(cell.train.distinct_batches is None for cell in control.cells())


def test_deep_full_rank_is_run_from_the_last_layers_start_where_figure_1_is_not():
    by_name = {one.name.partition("/")[2]: one for one in experiments(Scale.PAPER)}
    ahead, figure = by_name["last-layer"], by_name["figure1"]
    assert (ahead.train.start, figure.train.start) == (Start.LAST_LAYER, Start.TOWARDS_ANSWER)
    found = {(cell.model.layers, cell.model.budget, cell.model.rank) for cell in ahead.cells()}
    assert found == {(3, 64, 64), (5, 64, 64)}
    twins = {
        cell.train.replace(start=Start.LAST_LAYER)
        for cell in figure.cells()
        if (cell.model.layers, cell.model.budget, cell.model.rank) in found
    }
    assert {cell.train for cell in ahead.cells()} == twins, "nothing else is changed"
    assert not [one for one in experiments(Scale.QUICK) if one.name.endswith("last-layer")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("authors-recipe", "fresh batches, recipe of the repeated ones"),
        ("last-layer", "fresh batches, last layer ahead"),
    ],
)
def test_figure_1_shows_them_as_points(name, shown):
    theirs = published()
    place = (theirs["figure"] == "1") & (theirs["layers"] == 3) & (theirs["budget"] == 1)
    made = theirs[place].assign(dim=64, seed=0, trained=True, error=0.9, angle=0.0, norm=1.0, best_epoch=0.1)
    tables = {"amsel2024/repeated": made, f"amsel2024/{name}": made[made["rank"] == 64].assign(error=0.5)}
    drawn = {
        panel.title: [one for one in panel.series if one.name == shown]
        for panel in figures(Results(tables, lambda key: {}))[0].panels
    }
    (points,) = next(found for title, found in drawn.items() if title.startswith("3 layers, budget 1:"))
    assert (points.x, points.y, points.mark) == ([64], [0.5], Mark.POINTS)
    assert sum(map(len, drawn.values())) == 1, "in the panel of its shape alone"
