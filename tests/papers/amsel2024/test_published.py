"""Published values beside ours: which come out, which cannot be compared, and what figure 1 shows of them."""

import pandas as pd

from rankscope.lab import Scale
from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.published import published, replications
from rankscope.papers.amsel2024.recipe import AUTHORS_RECIPE


def test_at_the_talks_sizes_figure_1_counts_the_published_values_that_come_out():
    theirs = published()
    theirs = theirs[(theirs["figure"] == "1") & (theirs["layers"] == 1) & (theirs["budget"] == 8)]
    made = theirs.assign(dim=64, seed=0, trained=True, best_epoch=theirs["error"] * 1.1, error=0.9)
    made.loc[made["rank"] == 2, "best_epoch"] *= 2
    results = Results(
        {"amsel2024/repeated": made.assign(angle=176.0, norm=1530 * 8.0, sharpness=1.0)}, lambda key: {}
    )
    panels = {panel.title: panel for panel in figures(results)[0].panels}
    assert len(panels) == 9
    assert "1 layer, budget 8: 6 of 7 published = training loss" in panels
    assert [one.paper for one in panels["5 layers, budget 64 (not run)"].series] == [
        False,
        False,
        False,
        True,
        True,
    ], "the published curve and the error of no answer"
    figure_1, identity = replications(results)
    assert (len(figure_1.points), len(figure_1.compared), len(figure_1.agreeing)) == (63, 7, 6)
    assert [point.where for point in figure_1.off] == ["1 layer, budget 8, rank 2"]
    assert (len(identity.compared), identity.off) == (2, [])
    small = Results({"amsel2024/repeated": made.assign(dim=8)}, lambda key: {})
    assert replications(small) == []


def test_a_training_that_overflowed_is_compared_with_nothing_unless_another_seed_did_not():
    theirs = published()
    theirs = theirs[(theirs["figure"] == "1") & (theirs["layers"] == 5) & (theirs["budget"] == 1)]
    made = theirs.assign(dim=64, trained=True, best_epoch=theirs["error"], error=0.9, angle=0.0, norm=1.0)
    lost = (made["rank"] <= 2) * 60_000
    seeds = [made.assign(seed=0, left_out=lost), made[made["rank"] == 2].assign(seed=1, left_out=0)]
    results = Results({"amsel2024/repeated": pd.concat(seeds, ignore_index=True)}, lambda key: {})
    figure_1, _ = replications(results)
    assert (len(figure_1.compared), len(figure_1.agreeing)) == (6, 6)
    assert "6 of 6 published values agree" in str(figure_1)
    assert "; 56 more were not run" in str(figure_1)
    assert "; 1 more was not comparable, as gradients overflowed in more than 10% of their steps" in str(
        figure_1
    )
    drawn = figures(results)[0]
    (panel,) = [panel for panel in drawn.panels if panel.title.startswith("5 layers, budget 1:")]
    fitted, recalled, _, points, *_ = panel.series
    assert (fitted.x[0], recalled.x[0]) == (2, 2), "the curves leave the overflowed rank out"
    assert (points.name, sorted(points.x)) == ("overflowed (training loss)", [1, 2])
    assert "overflowed in more than 10% of their steps" in drawn.caption
    every = Results({"amsel2024/repeated": made.assign(seed=0, left_out=60_000)}, lambda key: {})
    titles = [panel.title for panel in figures(every)[0].panels]
    assert "5 layers, budget 1" in titles, "they were run, and are drawn as points"


def test_the_supplement_is_the_authors_and_counts_where_it_is_the_least():
    supplement = next(one for one in experiments(Scale.PAPER) if one.name.endswith("-supplement"))
    assert {cell.seed for cell in supplement.cells()} == {6, 7, 8}
    for cell in supplement.cells():
        assert (cell.model.layers, cell.model.budget, cell.model.rank in (16, 32)) == (3, 64, True)
        assert cell.train == AUTHORS_RECIPE.replace(batch=64, steps=200_000, precision=cell.train.precision)
    assert not [one for one in experiments(Scale.QUICK) if one.name.endswith("-supplement")]

    theirs = published()
    place = (theirs["figure"] == "1") & (theirs["layers"] == 3) & (theirs["budget"] == 64)
    made = theirs[place].assign(dim=64, seed=0, trained=True, error=0.9, angle=0.0, norm=1.0, left_out=0)
    further = made[made["rank"].isin([16, 32])].assign(
        seed=6, best_epoch=theirs["error"], left_out=(made["rank"] == 32) * 30_000
    )
    tables = {"amsel2024/repeated": made.assign(best_epoch=theirs["error"] * (1 + 9 * (made["rank"] >= 16)))}
    alone, _ = replications(Results(tables, lambda key: {}))
    assert [point.where.rpartition(" ")[2] for point in alone.off] == ["16", "32", "64"]
    tables["amsel2024/repeated-supplement"] = further
    both, _ = replications(Results(tables, lambda key: {}))
    assert [point.where.rpartition(" ")[2] for point in both.off] == ["32", "64"], (
        "16 comes out; 32 left out 15% of its 200,000 steps"
    )
    (panel,) = [
        panel
        for panel in figures(Results(tables, lambda key: {}))[0].panels
        if panel.title.startswith("3 layers, budget 64: 5 of 7")
    ]
    (points,) = [one for one in panel.series if one.name.startswith("supplementary")]
    assert points.x == [16]


def test_every_published_figure_is_compared_in_the_column_that_was_published():
    talk = published()
    kinds = {"none": "none", "additive": "authors' additive", "concatenated": "authors' concatenated"}
    tables = {
        "amsel2024/repeated-positions": talk[talk["figure"] == "positions"].assign(
            positions=lambda rows: rows["positions"].map(kinds)
        ),
        "amsel2024/repeated-tokens": talk[talk["figure"] == "tokens"],
    }
    tables = {
        name: rows.assign(dim=64, best_epoch=rows["error"], error=9.0, trained=True, seed=0)
        for name, rows in tables.items()
    }
    found = {one.experiment: one for one in replications(Results(tables, lambda key: {}))}
    assert {name: len(one.agreeing) for name, one in found.items()} == {
        "amsel2024/repeated-positions": 21,
        "amsel2024/repeated-tokens": 20,
    }
    ids = [figure.id for figure in figures(Results(tables, lambda key: {}))]
    assert ids == ["amsel2024-repeated-positions", "amsel2024-repeated-tokens", "amsel2024-survey"]
