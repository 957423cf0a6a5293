"""Rows of all members become each member's records, and rows of one cell find each other."""

import pandas as pd
import torch

from rankscope.lab.tidy import by_member, paired, per_seed, rows_of, with_whole


def test_every_member_gets_its_own_values():
    rows = [
        ({"measurement": "whole"}, {"loss": torch.tensor([0.5, 0.25])}),
        ({"measurement": "truncation", "rank": 2}, {"loss": torch.tensor([0.75, 1.0])}),
    ]
    assert by_member([{"seed": 3}, {"seed": 4}], rows) == [
        [
            {"seed": 3, "measurement": "whole", "loss": 0.5},
            {"seed": 3, "measurement": "truncation", "rank": 2, "loss": 0.75},
        ],
        [
            {"seed": 4, "measurement": "whole", "loss": 0.25},
            {"seed": 4, "measurement": "truncation", "rank": 2, "loss": 1.0},
        ],
    ]


PRUNED = pd.DataFrame(
    {
        "cell": ["a", "b", "b", "a", "a"],
        "measurement": ["whole", "whole", *["pruning"] * 3],
        "fraction": [None, None, 0.5, 0.5, 0.8],
        "loss": [1.0, 2.0, 5.0, 4.0, 7.0],
    }
)


def test_rows_find_the_other_row_of_their_cell():
    rows = rows_of(PRUNED, "pruning")
    assert (rows["loss"] - paired(rows, rows_of(PRUNED, "whole"), "loss")).tolist() == [3.0, 3.0, 6.0]


def test_the_whole_stands_before_what_was_taken_from_it():
    points = with_whole(PRUNED, rows_of(PRUNED, "pruning", fraction=0.5), fraction=0.0)
    assert points["fraction"].tolist() == [0.0, 0.0, 0.5, 0.5]
    assert points["loss"].tolist() == [1.0, 2.0, 5.0, 4.0]


TABLE = pd.DataFrame(
    {
        "measurement": ["whole", "truncation", "truncation", "truncation", "truncation"],
        "seed": [0, 1, 0, 0, 1],
        "rank": [None, 2, 2, 4, 4],
        "part": [None, "qk", "qk", "qk", "ov"],
        "loss": [0.5, 0.1, 0.2, 0.3, None],
        "heads": [3, None, None, None, None],
    }
)


def test_the_rows_of_a_measurement_are_those_at_every_given_coordinate():
    assert rows_of(TABLE, "truncation").index.tolist() == [1, 2, 3, 4]
    assert rows_of(TABLE, "truncation", rank=4).index.tolist() == [3, 4]
    assert rows_of(TABLE, "truncation", rank=4, part="qk").index.tolist() == [3]


def test_only_columns_that_these_rows_never_fill_are_left_out():
    """A column with one value missing stays, and so does a row with one."""
    assert list(rows_of(TABLE, "truncation")) == ["measurement", "seed", "rank", "part", "loss"]
    assert list(rows_of(TABLE, "whole")) == ["measurement", "seed", "loss", "heads"]
    assert rows_of(TABLE, "truncation")["loss"].isna().tolist() == [False, False, False, True]


def test_values_stand_in_the_order_of_the_seeds_and_else_in_that_of_the_table():
    seeds = [1, 0] * 20  # more than a sort that is not stable leaves in place
    rows = pd.DataFrame({"seed": seeds, "loss": range(40)})
    values = per_seed(rows, "loss")
    assert values == (*range(1, 40, 2), *range(0, 40, 2))
    assert {type(value) for value in values} == {float}


def test_a_column_of_truths_becomes_numbers():
    assert per_seed(pd.DataFrame({"seed": [1, 0], "trained": [True, False]}), "trained") == (0.0, 1.0)


def test_a_column_that_nobody_fills_stays_and_one_that_others_fill_goes():
    table = pd.DataFrame(
        {
            "measurement": ["training", "truncation", "truncation"],
            "rank": [None, 1, 2],
            "converged_step": [float("nan")] * 3,
            "loss": [None, 0.1, float("nan")],
        }
    )
    assert list(rows_of(table, "training")) == ["measurement", "converged_step"]
    assert rows_of(table, "truncation", rank=2)["loss"].isna().tolist() == [True]
