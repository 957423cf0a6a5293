"""Does low rank fail at many points, and does depth help it less there?

The thresholds are conventions, chosen before any of these encoders was trained: half of the error that needs no attention is a
failure, an error of 0.1 solves the task, and 10% make a difference.
"""

import math
from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin
from rankscope.lab.seeds import by_seed

FAILED = 0.5
"""Error over that of the best answer without attention from which the task is not learned."""

SOLVED = 0.1
"""Error that counts as having learned the task; the constant answer has 1."""

MORE = 1.1
"""Factor between two ratios of errors from which they differ."""

CLAIMS = Claims("amsel2024", Origin.BEYOND)
_claim = partial(CLAIMS, source="the conjecture of “What about more layers?”", experiment="many-points")


@_claim(
    "many-points-fail",
    says="With many points low-rank heads fail, even in several layers.",
    figure="many-points",
)
def _low_rank_fails(table: pd.DataFrame) -> list[Check]:
    most, deepest = table["tokens"].max(), table["layers"].max()
    at = table[(table["tokens"] == most) & (table["layers"] == deepest)]
    return [
        Check(
            f"error over that without attention, rank {rank}, {most} points, {deepest} layers",
            by_seed(rows, rows["error"] / rows["without_attention"]),
            AtLeast(FAILED),
        )
        for rank, rows in _low(at).groupby("rank")
    ]


@_claim(
    "many-points-solved",
    says="A full-rank head solves the task whatever the number of points.",
    figure="many-points",
)
def _full_rank_solves(table: pd.DataFrame) -> list[Check]:
    full = table[table["rank"] == table["dim"]]
    return [
        Check(
            f"error at full rank, {tokens} points, {layers} layers",
            by_seed(rows, rows["error"]),
            AtMost(SOLVED),
        )
        for (tokens, layers), rows in full.groupby(["tokens", "layers"], sort=True)
    ]


@_claim(
    "many-points-depth",
    says="The more points there are, the less depth helps heads of low rank.",
    figure="many-points-depth",
)
def _depth_helps_less(table: pd.DataFrame) -> list[Check]:
    (shallow, deep), (few, many) = ((table[name].min(), table[name].max()) for name in ("layers", "tokens"))
    checks = []
    for rank, rows in _low(table).groupby("rank"):
        errors = rows.pivot(index="seed", columns=["tokens", "layers"], values="error")
        ratio = {tokens: errors[tokens, deep] / errors[tokens, shallow] for tokens in (few, many)}
        what = f"log₂ of the error's ratio, {deep} layers over {shallow}, at {many} points over {few}, rank {rank}"
        values = tuple(math.log2(value) for value in ratio[many] / ratio[few])
        checks.append(Check(what, values, AtLeast(math.log2(MORE))))
    return checks


def _low(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of ranks below full."""
    return table[table["rank"] < table["dim"]]
