import pandas as pd

from rankscope.lab.tidy import rows_of


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
