"""Figures and findings of experiments: which are made, from which tables, and what they say they are of."""

import pandas as pd

from rankscope.figures.figure import Figure
from rankscope.lab.paper import NoArraysError, Results, drawn, found

ONE, OTHER = pd.DataFrame({"one": [1]}), pd.DataFrame({"other": [2]})


def no_arrays(key):
    raise NoArraysError(f"no arrays of {key}")


def ids(tables, makers):
    """The figures' ids with what each says that it is of."""
    results = Results({f"toy/{name}": table for name, table in tables.items()}, no_arrays)
    return [(figure.id, figure.experiments) for figure in drawn(results, "toy", makers)]


def shows(*tables, **own):
    """A figure whose id says which columns it was given."""
    columns = ["-" if table is None else table.columns[0] for table in tables]
    return Figure(" ".join(columns), "", "", "", (), **own)


def test_a_figure_is_drawn_where_its_experiment_was_run_and_says_so():
    makers = {"one": (shows,), "other": (shows, shows)}
    assert ids({"one": ONE}, makers) == [("one", ("toy/one",))]
    assert ids({"other": OTHER}, makers) == 2 * [("other", ("toy/other",))]
    assert ids({}, makers) == []


def test_a_figure_of_two_experiments_needs_one_and_is_of_those_that_were_run():
    makers = {("one", "other"): (shows,)}
    assert ids({"other": OTHER}, makers) == [("- other", ("toy/other",))]
    assert ids({"other": OTHER, "one": ONE}, makers) == [("one other", ("toy/one", "toy/other"))]


def test_experiments_that_a_figure_names_itself_stay():
    makers = {"one": (lambda table: shows(table, experiments=("toy/other",)),)}
    assert ids({"one": ONE}, makers) == [("one", ("toy/other",))]


def test_figures_without_anything_to_show_and_those_that_need_lost_arrays_are_left_out():
    makers = {"one": (lambda table: None, lambda table: no_arrays("a cell"), shows)}
    assert ids({"one": ONE}, makers) == [("one", ("toy/one",))]


def test_findings_come_from_the_tables_that_are_there():
    results = Results({"toy/one": ONE}, no_arrays)
    makers = {"one": (lambda table: "said", lambda table: None), "other": (lambda table: "unsaid",)}
    assert found(results, "toy", makers) == ["said"]
