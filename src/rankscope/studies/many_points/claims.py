"""Does low rank fail at many points, and does depth help it less there?

The thresholds are conventions. Two were chosen before any of these encoders was trained: half of the error that needs no
attention is a failure, and an error of 0.1 solves the task. The third, a tenth of what depth gains, came after a look at
`quick`, where depth gains so little that 10% of the error, asked at first, could not be lost.
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

LOST = 0.1
"""Share of what depth gains, in the logarithm of the error, from which it has become less."""

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
    """The ranks that depth helps among the fewest points, in every seed: the others have nothing to lose."""
    (shallow, deep), (few, many) = ((table[name].min(), table[name].max()) for name in ("layers", "tokens"))
    what = f"share of what {deep} layers gain over {shallow} (log of the error) that is lost at {many} points over {few}"
    checks = []
    for rank, rows in _low(table).groupby("rank"):
        errors = rows.pivot(index="seed", columns=["tokens", "layers"], values="error").map(math.log)
        gained = {tokens: errors[tokens, shallow] - errors[tokens, deep] for tokens in (few, many)}
        if (gained[few] > 0).all():
            checks.append(Check(f"{what}, rank {rank}", tuple(1 - gained[many] / gained[few]), AtLeast(LOST)))
    nothing = Check(f"{what}: depth helps no rank", (math.nan,) * table["seed"].nunique(), AtLeast(LOST))
    return checks or [nothing]


def _low(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of ranks below full."""
    return table[table["rank"] < table["dim"]]
