import pandas as pd

from rankscope.lab.tidy import per_seed, rows_of

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
