"""Tidy tables for tests: single values looked up, and tables in which some values were changed."""

import pandas as pd


def chosen(table, measurement, **at):
    """Which rows are of a measurement at some coordinates; there must be one."""
    rows = table["measurement"] == measurement
    for name, value in at.items():
        rows &= table[name] == value
    assert rows.any(), (measurement, at)
    return rows


def one_value(records, column, measurement, **at):
    """The one value of a column among records."""
    table = pd.DataFrame(records)
    (found,) = table.loc[chosen(table, measurement, **at), column]
    return found


def changed(column, to, measurement, **at):
    """A function from a table to one with another value in a column of some rows; `to` may be a function of the table."""

    def change(table):
        rows = chosen(table, measurement, **at)
        assert table.loc[rows, column].notna().all(), column
        other = to(table) if callable(to) else to
        return table.assign(**{column: table[column].where(~rows, other)})

    return change
