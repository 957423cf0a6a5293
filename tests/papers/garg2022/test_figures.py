"""What garg2022's figures leave out."""

import pandas as pd

from rankscope.papers.garg2022.figures import _algorithms, _without_one
from rankscope.tasks.in_context import Functions


def test_an_algorithm_is_drawn_where_it_errs_by_no_more_than_the_answer_0_and_named_where_it_is_drawn():
    errors = {
        "least squares": (1.0, 0.5, 0.0, 0.0),
        "averaging": (1.0, 2.0, 1.5, 1.0),
        "late": (1.0, 1.2, 0.9, 0.8),
        "never": (3.0, 2.0, 1.5, 1.2),
    }
    rows = [
        {
            "measurement": "baseline",
            "functions": "linear",
            "algorithm": name,
            "examples": count,
            "error": error,
        }
        for name, values in errors.items()
        for count, error in enumerate(values)
    ]
    drawn = {line.name: line for line in _algorithms(pd.DataFrame(rows), Functions.LINEAR)}
    assert drawn.keys() == {"least squares", "late"}, "averaging would be two points apart"
    assert list(drawn["least squares"].y) == [1.0, 0.5, 0.0, 0.0]
    late = pd.Series(list(drawn["late"].y))
    assert late.isna().tolist() == [False, True, False, False]
    assert all(line.paper for line in drawn.values())


def test_a_panel_of_transitions_says_how_many_trainings_had_none():
    assert _without_one(pd.DataFrame({"transition": [250.0, None, None]})) == " (none by the end in 2 of 3)"
    assert _without_one(pd.DataFrame({"transition": [250.0, 500.0]})) == ""
