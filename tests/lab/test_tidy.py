"""Rows of all members become each member's records, and rows of one cell find each other."""

import pandas as pd
import torch

from rankscope.lab.tidy import by_member, paired, rows_of, with_whole


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


TABLE = pd.DataFrame(
    {
        "cell": ["a", "b", "b", "a", "a"],
        "measurement": ["whole", "whole", *["pruning"] * 3],
        "fraction": [None, None, 0.5, 0.5, 0.8],
        "loss": [1.0, 2.0, 5.0, 4.0, 7.0],
    }
)


def test_rows_find_the_other_row_of_their_cell():
    rows = rows_of(TABLE, "pruning")
    assert (rows["loss"] - paired(rows, rows_of(TABLE, "whole"), "loss")).tolist() == [3.0, 3.0, 6.0]


def test_the_whole_stands_before_what_was_taken_from_it():
    points = with_whole(TABLE, rows_of(TABLE, "pruning", fraction=0.5), fraction=0.0)
    assert points["fraction"].tolist() == [0.0, 0.0, 0.5, 0.5]
    assert points["loss"].tolist() == [1.0, 2.0, 5.0, 4.0]
