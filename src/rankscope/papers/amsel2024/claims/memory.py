"""What the authors' program does beside what the talk says: its batches repeat."""

import math

import pandas as pd

from rankscope.lab import AtLeast, Check, Claims, Origin
from rankscope.papers.amsel2024.claims.trained import CLEARLY, FACTOR, low_rank_stays_behind
from rankscope.papers.amsel2024.experiments import CONTROL
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import at_the_end, overflowed

BOUND = AtLeast(math.log2(CLEARLY))
RATIO = "mean log₂ of the error on new points over that on the repeated ones"

CLAIMS = Claims("amsel2024", Origin.BEYOND)


@CLAIMS(
    "memory",
    source="the authors' program",
    says="On batches that repeat, several layers of low rank that fit them remember instead of learning: the same weights "
    "err at least twice as much on new points, in the geometric mean over the ranks.",
    experiment="repeated",
    figure="1",
)
def _low_rank_remembers(table: pd.DataFrame) -> list[Check]:
    """The ranks below full at every depth and budget; a rank of which one training is lost is left out, and named."""
    ended = ends(table)
    deep = _with_lost(ended[(ended["layers"] > 1) & (ended["rank"] < ended["dim"])])
    kept, left_out = deep[~deep["lost"]], _named(deep)
    if kept.empty:
        return [Check(f"{RATIO}{left_out}", (math.nan,) * deep["seed"].nunique(), BOUND, FACTOR)]
    known = kept.assign(ratio=(kept["error"] / at_the_end(kept)).map(math.log2))
    checks = []
    for (layers, budget), rows in known.groupby(["layers", "budget"], sort=True):
        means = rows.pivot(index="seed", columns="rank", values="ratio").mean(axis=1, skipna=False)
        what = f"{RATIO}, {layers} layers, budget {budget}{left_out}"
        checks.append(Check(what, tuple(means.sort_index()), BOUND, FACTOR))
    return checks


CLAIMS(
    "recipe",
    source="the authors' program",
    says="It is the repeated batches, not the recipe: by the same recipe on fresh points, several layers of low rank err at "
    "least twice as much as full rank.",
    experiment=CONTROL,
    figure="1",
)(low_rank_stays_behind)


def _with_lost(deep: pd.DataFrame) -> pd.DataFrame:
    """With a column for places where the training of some seed does not fit the repeated batches, or overflowed."""
    lost = deep.assign(lost=~deep["trained"].astype(bool) | overflowed(deep))
    return lost.assign(lost=lost.groupby(["layers", "budget", "rank"])["lost"].transform("any"))


def _named(deep: pd.DataFrame) -> str:
    """The places that are left out, in words: whole shapes, or ranks of one."""
    places = []
    for (layers, budget), rows in deep[deep["lost"]].groupby(["layers", "budget"], sort=True):
        shape = deep[(deep["layers"] == layers) & (deep["budget"] == budget)]
        ranks = "" if shape["lost"].all() else f", rank {', '.join(map(str, sorted(set(rows['rank']))))}"
        places.append(f"{layers} layers, budget {budget}{ranks}")
    return f" (left out, as they do not fit them or overflowed: {'; '.join(places)})" if places else ""
