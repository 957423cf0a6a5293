"""The talk's values, read off its plots, and which of them come out here."""

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files

import pandas as pd

from rankscope.lab.missing import OVERFLOWED
from rankscope.lab.paper import Results
from rankscope.lab.replication import NOT_RUN, READ_OFF, READ_OFF_LOG, Point, Replication
from rankscope.lab.sizes import counted
from rankscope.papers.amsel2024.measurement import ends

PUBLISHED_DIM = 64
PUBLISHED_IDENTITY = {"angle": {1: 179.5, 8: 176.0, 64: 168.5}, "norm": {1: 2400.0, 8: 1530.0, 64: 1470.0}}
"""What the talk's full-rank heads learn, by budget: degrees, and ‖·‖_F/√dim, which its program calls the Frobenius norm."""

FIGURES = {
    "1": ("figure 1", ("layers", "budget", "rank"), READ_OFF_LOG),
    "positions": ("positional encodings", ("layers", "positions", "rank"), READ_OFF_LOG),
    "tokens": ("role of N", ("tokens", "rank"), READ_OFF),
}
"""Of each figure: its name, the axes of its points, and how nearly it can be read."""

STEPS = {"figure1": 100_000, "repeated": 100_000}
"""Steps of a training at the talk's sizes; all other experiments have `LONG_STEPS`."""

LONG_STEPS = 200_000

SUPPLEMENT = "repeated-supplement"
"""Further runs of two places of figure 1, which count as `repeated` does: the least training loss of all is published."""

LOST = f"not comparable, as gradients overflowed in more than {OVERFLOWED:.0%} of their steps"

BEST_EPOCH = "training loss of the best epoch, best of the seeds"
BEST_ERROR = "error on new points, best of the seeds"

COMPARED = (
    ("repeated", "1", "best_epoch", BEST_EPOCH),
    ("figure1", "1", "error", BEST_ERROR),
    ("repeated-positions", "positions", "best_epoch", BEST_EPOCH),
    ("positions", "positions", "error", BEST_ERROR),
    ("repeated-tokens", "tokens", "best_epoch", BEST_EPOCH),
    ("tokens", "tokens", "error", BEST_ERROR),
)
"""Experiment, the talk's figure, the column that is compared with it, and that in words."""


def published() -> pd.DataFrame:
    """The talk's curves: figure, layers, budget, tokens, positions, rank, error."""
    with files("rankscope.papers.amsel2024").joinpath("published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def published_beside(table: pd.DataFrame, figure: str) -> pd.DataFrame:
    """The talk's curves of a figure, where our sizes are the talk's."""
    rows = published()
    return rows[(rows["figure"] == figure) & bool((table["dim"] == PUBLISHED_DIM).any())]


def replications(results: Results) -> list[Replication]:
    """Every published figure that an experiment at the talk's sizes can be compared with."""
    at_its_sizes = {}
    for name, table in results.tables.items():
        paper, _, experiment = name.partition("/")
        if paper == "amsel2024" and "dim" in table and (table["dim"] == PUBLISHED_DIM).any():
            ended = ends(table)
            at_its_sizes[experiment] = ended.assign(overflowed=overflowed(ended, experiment))
    if {"repeated", SUPPLEMENT} <= at_its_sizes.keys():
        at_its_sizes["repeated"] = pd.concat([at_its_sizes["repeated"], at_its_sizes[SUPPLEMENT]])
    found = [
        Replication(
            name,
            words,
            f"amsel2024/{experiment}",
            f"amsel2024-{figure}",
            tuple(_points(at_its_sizes[experiment], figure, column)),
        )
        for experiment, figure, column, words in COMPARED
        if experiment in at_its_sizes
        for name, *_ in (FIGURES[figure],)
    ]
    return [*found, *(_identity(at_its_sizes[name], name) for name in ("repeated",) if name in at_its_sizes)]


def overflowed(table: pd.DataFrame, experiment: str = "repeated") -> "pd.Series[bool]":
    """Which trainings of an experiment's table left out so many steps that they are not the published ones, in float32."""
    if "left_out" not in table:
        return pd.Series(False, index=table.index)
    return table["left_out"].fillna(0) > OVERFLOWED * STEPS.get(experiment, LONG_STEPS)


def at_the_end(table: pd.DataFrame) -> "pd.Series[float]":
    """The training loss of the weights whose error was measured, those at the end; where it is not known the least epoch's."""
    best = table["best_epoch"]
    return table["last_epoch"].fillna(best) if "last_epoch" in table else best


def _points(table: pd.DataFrame, figure: str, column: str) -> Iterator[Point]:
    """The figure's points, each beside the least value of our seeds."""
    _, names, tolerance = FIGURES[figure]
    axes, theirs = list(names), published()
    named = table.assign(positions=table["positions"].map(KIND)) if "positions" in axes else table
    run = set(named.groupby(axes).groups)
    least = named[~named["overflowed"]].groupby(axes)[column].min()
    for _, row in theirs[theirs["figure"] == figure].iterrows():
        place = tuple(row[axis] for axis in axes)
        where = place_name({axis: row[axis] for axis in axes})
        measured = least.get(place)
        if measured is not None:
            yield Point(where, float(row["error"]), float(measured), tolerance)
        else:
            yield Point(where, float(row["error"]), None, tolerance, LOST if place in run else NOT_RUN)


KIND: Mapping[str, str] = {
    "none": "none",
    "additive": "additive",
    "concatenated": "concatenated",
    "authors' additive": "additive",
    "authors' concatenated": "concatenated",
}
"""What the talk calls our kinds of positions."""

NAMES: Mapping[str, Callable[[object], str]] = {
    "layers": lambda layers: counted(layers, "layer"),
    "tokens": lambda tokens: f"{tokens} tokens",
    "positions": str,
}


def place_name(at: Mapping[str, object]) -> str:
    """A place of a published figure in words.

    >>> place_name({"layers": 1, "budget": 8})
    '1 layer, budget 8'
    """
    return ", ".join(NAMES.get(axis, f"{axis} {{}}".format)(value) for axis, value in at.items())


def _identity(table: pd.DataFrame, experiment: str) -> Replication:
    """Angle and norm of W_KᵀW_Q in one layer of full rank, mean over seeds."""
    full = table[(table["layers"] == 1) & (table["rank"] == table["dim"])]
    means = full.groupby("budget")[["angle", "norm"]].mean()
    points = []
    for column, of_budget in PUBLISHED_IDENTITY.items():
        unit = PUBLISHED_DIM**0.5 if column == "norm" else 1.0
        for budget, value in of_budget.items():
            measured = float(means[column][budget]) / unit if budget in means.index else None
            points.append(Point(f"{column}, {budget} heads", value, measured, READ_OFF))
    return Replication(
        "what full rank learns", "mean of the seeds", f"amsel2024/{experiment}", "amsel2024-identity", points
    )
