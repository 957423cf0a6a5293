"""The talk's values, read off its plots, and which of them come out here."""

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files

import pandas as pd

from rankscope.lab.paper import Results
from rankscope.lab.replication import READ_OFF, READ_OFF_LOG, Point, Replication

PUBLISHED_DIM = 64
PUBLISHED_IDENTITY = {"angle": {1: 179.5, 8: 176.0, 64: 168.5}, "norm": {1: 2400.0, 8: 1530.0, 64: 1470.0}}
"""What the talk's full-rank heads learn, by budget: degrees, and ‖·‖_F/√dim, which its program calls the Frobenius norm."""

FIGURES = {
    "1": ("figure 1", ("layers", "budget", "rank"), READ_OFF_LOG),
    "positions": ("positional encodings", ("layers", "positions", "rank"), READ_OFF_LOG),
    "tokens": ("role of N", ("tokens", "rank"), READ_OFF),
}
"""Of each figure: its name, the axes of its points, and how nearly it can be read."""

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


def replications(results: Results) -> list[Replication]:
    """Every published figure that an experiment at the talk's sizes can be compared with."""
    at_its_sizes = {
        name.partition("/")[2]: table
        for name, table in results.tables.items()
        if name.startswith("amsel2024/") and "dim" in table and (table["dim"] == PUBLISHED_DIM).any()
    }
    found = [
        Replication(
            name,
            words,
            f"amsel2024/{experiment}",
            f"amsel2024-{figure}",
            tuple(_points(at_its_sizes[experiment], figure, column, axes, tolerance)),
        )
        for experiment, figure, column, words in COMPARED
        if experiment in at_its_sizes
        for name, axes, tolerance in (FIGURES[figure],)
    ]
    return [*found, *(_identity(at_its_sizes[name], name) for name in ("repeated",) if name in at_its_sizes)]


def _points(
    table: pd.DataFrame, figure: str, column: str, axes: tuple[str, ...], tolerance: float
) -> Iterator[Point]:
    """The figure's points, each beside the least value of our seeds."""
    theirs = published()
    named = table.assign(positions=table["positions"].map(KIND)) if "positions" in axes else table
    least = named.groupby(list(axes))[column].min()
    for _, row in theirs[theirs["figure"] == figure].iterrows():
        place = tuple(row[axis] for axis in axes)
        where = ", ".join(NAMES.get(axis, f"{axis} {{}}".format)(row[axis]) for axis in axes)
        measured = least.get(place)
        yield Point(where, float(row["error"]), None if measured is None else float(measured), tolerance)


KIND: Mapping[str, str] = {
    "none": "none",
    "additive": "additive",
    "concatenated": "concatenated",
    "authors' additive": "additive",
    "authors' concatenated": "concatenated",
}
"""What the talk calls our kinds of positions."""

NAMES: Mapping[str, Callable[[object], str]] = {
    "layers": lambda layers: f"{layers} layer{'s' * (layers != 1)}",
    "tokens": lambda tokens: f"{tokens} tokens",
    "positions": str,
}


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
