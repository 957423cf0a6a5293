"""From the rows of a table to one value per seed, and how many seeds are behind a number."""

import pandas as pd


def by_seed(table: pd.DataFrame, values: pd.Series, how: str = "mean") -> tuple[float, ...]:
    """The mean of the values over the rows of each seed, or what else `how` names.

    >>> table = pd.DataFrame({"seed": [1, 0, 0], "error": [3.0, 1.0, 2.0]})
    >>> by_seed(table, table["error"]), by_seed(table, table["error"], "max")
    ((1.5, 3.0), (2.0, 3.0))
    """
    return tuple(values.groupby(table["seed"]).agg(how).astype(float))


def fewest_seeds(table: pd.DataFrame, places: str | list[str]) -> int:
    """The least number of seeds at a place.

    >>> fewest_seeds(pd.DataFrame({"seed": [0, 1, 0], "rank": [1, 1, 2]}), "rank")
    1
    """
    return int(table.groupby(places)["seed"].nunique().min())
