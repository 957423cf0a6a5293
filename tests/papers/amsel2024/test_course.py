"""The training loss on the way: what a training would have had published that ended there."""

import pandas as pd
import pytest
import torch

from rankscope.lab import Job, Scale
from rankscope.lab.paper import Results
from rankscope.lab.tidy import MEASUREMENT
from rankscope.papers.amsel2024.course import COURSES
from rankscope.papers.amsel2024.experiments import experiments
from rankscope.papers.amsel2024.figures import figures
from rankscope.papers.amsel2024.measurement import COURSE, END, best_epoch, course, ends
from rankscope.papers.amsel2024.published import published, replications
from rankscope.papers.amsel2024.training import train_group


def test_a_course_has_the_least_epoch_so_far_and_ends_with_the_published_measure():
    means = torch.tensor([4.0, 2.0, 3.0, torch.nan, 1.0] + [5.0] * 35)  # forty epochs of two steps
    losses = means.repeat_interleave(2) + torch.tensor([0.5, -0.5]).repeat(40)
    found = course(losses, 2)
    assert [row[MEASUREMENT] for row in found] == [COURSE] * 20
    assert [row["share"] for row in found] == pytest.approx([part / 20 for part in range(1, 21)])
    assert [row["best_epoch"] for row in found] == [2.0, 2.0] + [1.0] * 18
    assert found[-1]["best_epoch"] == best_epoch(losses[:, None], 2).item()
    assert [row["share"] for row in course(losses[:6], 2)] == pytest.approx(
        [part / 20 for part in range(7, 21)]
    ), "of three epochs the first is over after seven twentieths"


def test_repeated_batches_keep_their_course_beside_their_end():
    repeated = next(one for one in experiments(Scale.SMOKE) if one.name.endswith("/repeated"))
    cells = repeated.cells()[:2]
    losses = train_group(cells, Job())[1]
    for member, outcome in enumerate(repeated.trainer.run(cells, Job())):
        end, *way = outcome.records
        assert end[MEASUREMENT] == END
        assert way == course(losses[:, member], cells[member].train.distinct_batches)
        assert end["best_epoch"] == way[-1]["best_epoch"]
        table = pd.DataFrame([*outcome.records, {"best_epoch": 9.0}])
        assert ends(table)["best_epoch"].tolist() == [end["best_epoch"], 9.0], "older cells have no course"
    fresh = next(one for one in experiments(Scale.SMOKE) if one.name.endswith("/figure1"))
    (alone,) = fresh.trainer.run(fresh.cells()[:1], Job())
    assert len(alone.records) == 1


def test_courses_are_drawn_to_the_published_values_and_counted_nowhere_else():
    theirs = published()
    theirs = theirs[(theirs["figure"] == "1") & (theirs["budget"] == 64) & (theirs["layers"] == 3)]
    end = theirs.assign(
        dim=64,
        seed=0,
        trained=True,
        best_epoch=theirs["error"],
        error=0.9,
        angle=0.0,
        norm=1.0,
        measurement=END,
    )
    end["cell"] = end["rank"].map(str)
    way = [
        end.assign(measurement=COURSE, share=share, best_epoch=end["best_epoch"] / share, error=float("nan"))
        for share in (0.5, 1.0)
    ]
    results = Results({"amsel2024/repeated": pd.concat([end, *way], ignore_index=True)}, lambda key: {})
    drawn = {figure.id: figure for figure in figures(results)}
    (panel,) = drawn["amsel2024-repeated-course"].panels
    assert panel.title == "3 layers, budget 64"
    curves, levels = panel.series[::2], panel.series[1::2]
    assert [one.name for one in curves] == [f"rank {rank}" for rank in (1, 2, 4, 8, 16, 32, 64)]
    assert [one.like for one in levels] == [one.name for one in curves]
    for line, level in zip(curves, levels, strict=True):
        assert line.x == [0.5, 1.0]
        assert (level.x, level.y) == ([0.05, 1.0], [pytest.approx(line.y[-1])] * 2)
    (one,) = [
        panel for panel in drawn["amsel2024-1"].panels if panel.title.startswith("3 layers, budget 64:")
    ]
    assert one.title == "3 layers, budget 64: 7 of 7 published = training loss"
    assert [len(series.x) for series in one.series[:2]] == [7, 7]
    assert replications(results)[0].agreeing == replications(results)[0].compared
    bare = Results({"amsel2024/repeated": end.drop(columns=MEASUREMENT)}, lambda key: {})
    assert not [figure for figure in figures(bare) if figure.id.endswith("course")]


def test_courses_of_some_shapes_keep_their_places_in_the_grid():
    way = pd.DataFrame(
        [
            {
                "layers": layers, "budget": budget, "rank": 8, "seed": 0, "dim": 64, "cell": f"{layers}{budget}{share}",
                "share": share, "best_epoch": 0.5, "measurement": COURSE,
            }
            for layers, budget in ((1, 8), (1, 64), (3, 64)) for share in (0.5, 1.0)
        ]
    )  # fmt: skip
    figure = COURSES["repeated"][0](way)
    titles = [panel.title for panel in figure.panels]
    assert titles == [
        "1 layer, budget 8", "1 layer, budget 64", "3 layers, budget 8 (no course)", "3 layers, budget 64",
    ]  # fmt: skip
    assert figure.shape == (2, 2)
    assert [len(series.x) for series in figure.panels[2].series if not series.paper] == [0] * 7
    assert "Dashed, in the colour of its rank: published." in figure.caption


def of_positions(**changed):
    """Ends of trainings by the authors' program at three layers with added positions, and half of their course."""
    theirs = published()
    theirs = theirs[(theirs["figure"] == "positions") & (theirs["positions"] == "additive")]
    end = theirs.assign(
        positions="authors' additive",
        seed=0,
        trained=True,
        best_epoch=theirs["error"],
        measurement=END,
        dim=64,
    ).assign(**changed)
    end["cell"] = end["rank"].map(str)
    way = end.assign(measurement=COURSE, share=0.5, best_epoch=9.0, error=float("nan"), trained=None)
    both = {"with": pd.concat([end, way], ignore_index=True), "without": end.drop(columns=MEASUREMENT)}
    return {
        name: Results({"amsel2024/repeated-positions": table}, lambda key: {}) for name, table in both.items()
    }


def test_a_course_of_positions_goes_by_the_talks_name_for_them_and_changes_no_other_figure():
    results = of_positions()
    drawn, before = ({figure.id: figure for figure in figures(results[name])} for name in ("with", "without"))
    (panel,) = drawn.pop("amsel2024-repeated-positions-course").panels
    assert panel.title == "3 layers, additive"
    assert [series.paper for series in panel.series] == [False, True] * 7
    assert drawn == before


def test_the_talks_values_are_not_drawn_into_the_courses_of_other_sizes():
    drawn = {figure.id: figure for figure in figures(of_positions(dim=8)["with"])}
    course_of_another = drawn["amsel2024-repeated-positions-course"]
    assert not any(series.paper for panel in course_of_another.panels for series in panel.series)
    assert course_of_another.caption.endswith("The talk's values are for dim 64.")


def test_positions_are_drawn_beside_figure_1s_run_without_any():
    theirs = published()
    run = theirs[(theirs["figure"] == "1") & (theirs["budget"].isin([1, 8]))]
    run = run.assign(
        dim=64,
        seed=0,
        cell=run.index.map(str),
        trained=True,
        best_epoch=run["error"],
        angle=0.0,
        norm=1.0,
        sharpness=1.0,
    )
    alone = of_positions()["without"].tables
    name = "amsel2024-repeated-positions"
    drawn, before = (
        next(one for one in figures(Results(tables, lambda key: {})) if one.id == name)
        for tables in (alone | {"amsel2024/repeated": run}, alone)
    )
    panel = drawn.panels[-1]
    ours = next(one for one in panel.series if one.name == "none, figure 1's run")
    talk = next(one for one in panel.series if one.name == "talk, positions none")
    assert list(ours.y) == list(talk.y) == [0.58, 0.385, 0.225, 0.108, 0.067, 0.036, 0.0070]
    assert "Without positions there are two runs" in drawn.caption
    assert "two runs" not in before.caption
    assert not [one for one in before.panels[-1].series if one.name == ours.name]
    only = figures(Results({"amsel2024/repeated": run}, lambda key: {}))
    assert name not in [one.id for one in only]


def test_a_tenth_of_the_steps_is_twice_as_many_where_trainings_are_twice_as_long():
    for lost, compared in ((20_000, 7), (20_001, 0)):
        (found,) = replications(of_positions(left_out=lost)["with"])
        assert len(found.compared) == compared
