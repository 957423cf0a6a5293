"""A claim of which cells are missing has a verdict just if no value of theirs could change what it says."""

import warnings

import numpy as np
import pandas as pd
import pytest

from rankscope.lab import AtMost, Check, Claim, Judgement, Verdict
from rankscope.lab.partial import Part, _filled, boxes, coverage, judged
from rankscope.lab.section import Unfinished
from tests.lab.toy import toy

TOY = toy(cells=6)
ERRORS = {1.0: 0.5, 2.0: 0.25, 3.0: 1.0}


def table(cells, errors=ERRORS):
    """What the toy's cells measured: a number, a whole number, and a word."""
    return pd.DataFrame(
        [
            {
                "scale": dict(cell.point)["scale"],
                "seed": cell.seed,
                "cell": cell.key(),
                "error": errors[dict(cell.point)["scale"]] + cell.seed / 100,
                "heads": 4,
                "part": "whole",
            }
            for cell in cells
        ]
    )


def part(run, **others):
    """The toy's cells of which `run` says so have been run."""
    cells = TOY.cells()
    done = [cell for cell in cells if run(dict(cell.point)["scale"], cell.seed)]
    return Part(TOY, table(done, **others), [cell for cell in cells if cell not in done])


def without_scale_2(scale, seed):
    return scale != 2.0


def asks(*questions):
    """A claim with one check per question: the values that it takes from a table."""

    def checks(table):
        return [
            Check(
                f"question {place}",
                tuple(np.atleast_1d(np.asarray(question(table), dtype=float))),
                AtMost(2.0),
            )
            for place, question in enumerate(questions)
        ]

    return Claim("toy.c", "Figure 0", "It is so.", "1", "toy", "fig", checks)


def of_scale_1(table):
    return table.loc[table["scale"] == 1.0, "error"]


@pytest.mark.parametrize(
    ("question", "errors"),
    [
        pytest.param(lambda t: t.groupby("seed")["error"].max(), ERRORS, id="only a large value shows"),
        pytest.param(
            lambda t: t.groupby("seed")["error"].min(),
            {1.0: -1.0, 3.0: -2.0},
            id="only a negative value shows",
        ),
        pytest.param(
            lambda t: t.assign(error=np.log2(t["error"])).groupby("seed")["error"].min(),
            {1.0: 0.5, 3.0: 0.25},
            id="only a small value shows",
        ),
        pytest.param(lambda t: t["heads"].isna().sum(), ERRORS, id="only a missing whole number shows"),
        pytest.param(lambda t: t.groupby("cell")["error"].first(), ERRORS, id="a cell has its own name"),
        pytest.param(lambda t: (t["part"] == "whole").sum(), ERRORS, id="a word is kept"),
        pytest.param(lambda t: t["scale"].nunique(), ERRORS, id="a coordinate is the cell's own"),
        pytest.param(lambda t: (t["seed"] == 0).sum(), ERRORS, id="so is the seed"),
    ],
)
def test_a_check_that_sees_the_missing_cells_has_no_verdict(question, errors):
    some = part(without_scale_2, errors=errors)
    found = judged(asks(question, of_scale_1), some)
    assert isinstance(found, Unfinished)
    assert found.claim.id == "toy.c"
    assert [check.what for check in found.so_far] == ["question 1"]


def test_a_check_without_a_value_says_nothing_so_far():
    of_none = asks(lambda t: t.groupby("seed")["error"].max(), lambda t: t.loc[t["scale"] == 9.0, "error"])
    assert judged(of_none, part(without_scale_2)).so_far == []


@pytest.mark.parametrize(
    "question",
    [
        of_scale_1,
        pytest.param(
            lambda t: (np.log2(t["error"]) + np.sqrt(t["seed"]))[t["scale"] == 1.0],
            id="columns keep their kinds",
        ),
        pytest.param(
            lambda t: t.loc[t.loc[t["scale"] == 1.0, "error"].idxmin(), "error"],
            id="no two rows have one index",
        ),
        pytest.param(lambda t: t["heads"].max(), id="a whole number is not made very large"),
    ],
)
def test_a_check_that_does_not_see_the_missing_cells_is_judged(question):
    some = part(without_scale_2)
    found = judged(asks(question), some)
    assert isinstance(found, Judgement)
    assert found.checks == tuple(asks(question).checks(some.table))


def test_values_that_cannot_be_measured_do_not_keep_a_check_from_a_verdict():
    def in_range(table):
        if (table["error"].abs() > 10).any() or (table["error"] < 0).any():
            raise ValueError("an error is between 0 and 10")
        return of_scale_1(table)

    assert isinstance(judged(asks(in_range), part(without_scale_2)), Judgement)


def test_values_that_nothing_was_measured_to_have_warn_nobody():
    def steep(table):
        return np.exp(table["error"].to_numpy())[(table["scale"] == 1.0).to_numpy()]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(judged(asks(steep), part(without_scale_2)), Judgement)


@pytest.mark.parametrize("error", [KeyError, IndexError, ValueError, TypeError, ZeroDivisionError])
def test_a_check_that_the_table_has_too_little_for_is_unfinished(error):
    def needs_all(table):
        if table["scale"].nunique() < 3:
            raise error
        return table["error"]

    claim = asks(of_scale_1, needs_all)
    assert judged(claim, part(without_scale_2)) == Unfinished(claim, [])


def test_one_row_is_enough_to_stand_for_the_cells_that_are_missing():
    found = judged(
        asks(lambda table: table["error"].max()), part(lambda scale, seed: scale == 1 and seed == 0)
    )
    assert isinstance(found, Unfinished)
    assert found.so_far == []


def test_a_whole_table_is_judged_as_it_is():
    found = judged(asks(lambda table: table.groupby("seed")["error"].max()), part(lambda scale, seed: True))
    assert isinstance(found, Judgement)
    assert found.verdict is Verdict.HOLDS
    assert found.checks[0].values == (1.0, 1.01)


def test_what_was_run_is_counted_and_what_was_not_is_named():
    assert coverage(part(lambda scale, seed: True)) == "toy: 6 of 6 cells were run."
    assert coverage(part(without_scale_2)) == "toy: 4 of 6 cells were run. Not run: scale 2.0."
    assert coverage(part(lambda scale, seed: seed == 0)) == "toy: 3 of 6 cells were run. Not run: seed 1."
    some = part(lambda scale, seed: scale == 1 or (scale == 2 and seed == 1))
    assert coverage(Part(TOY, some.table, some.missing, others=7)) == (
        "toy: 3 of 6 cells were run. Not run: scale 2.0 · seed 0; scale 3.0. "
        "The folder has 7 more cells, of other settings; they are not shown."
    )


def test_an_axis_of_which_every_label_is_missing_alike_is_not_named():
    axes = {"a": (1, 2), "b": (3, 4), "c": (5, 6)}
    points = [(a, b, c) for a in (1, 2) for b, c in ((3, 5), (4, 6))]
    assert boxes(axes, points) == ["b 3 · c 5", "b 4 · c 6"]
    assert boxes(axes, [(1, 3, 5), (2, 4, 6)]) == ["a 1 · b 3 · c 5", "a 2 · b 4 · c 6"]


def test_a_tidy_coordinate_that_is_named_like_a_setting_stays_the_rows_own():
    """`width` is a field of the task and a coordinate of the rows: a missing cell's rows keep both of its values."""
    experiment = toy(6)
    first, second = experiment.cells()[:2]
    rows = [
        {
            "scale": 1.0,
            "seed": first.seed,
            "cell": first.key(),
            "measurement": "cut",
            "width": width,
            "loss": 0.1 * width,
        }
        for width in (1, 2)
    ]
    filled = _filled(Part(experiment, pd.DataFrame(rows), [second]), None)
    assert filled[filled["cell"] == second.key()]["width"].tolist() == [1, 2]
