"""Does rank below the input's dimensions predict the error that is left, and how much of its rank does a head use?"""

from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, Between, Check, Claims, Origin
from rankscope.lab.check import Threshold
from rankscope.papers.garg2022.quantities import by_size
from rankscope.studies.in_context.floors import ALL, ALONE, LAYER, used, with_floors

SOURCE = "rank in context"
BEYOND = 1.5
"""Factor between the directions that a head uses and those that inputs ask for up to which they are about as many."""

CLAIMS = Claims("garg2022", Origin.BEYOND)


def _all_known(values: "pd.Series[float]") -> bool:
    return bool(values.notna().all())


def _above(name: str, table: pd.DataFrame) -> list[Check]:
    """The least error beyond the prediction, over decoders for which it is not zero.

    A decoder that is below it says so at any time; one that is above it, once its loss has come to rest.
    """
    rows = with_floors(table)
    rows = rows[rows[name] > 0]
    beyond = rows["error"] - rows[name]
    final = beyond.where(rows["over"] | (beyond < 0)).groupby(rows["seed"], sort=True)
    least = final.min().where(final.min().lt(0) | final.agg(_all_known))
    what = f"least error beyond the prediction, directions of {name} added up"
    return [Check(what, tuple(least.astype(float)), AtLeast(0.0), Threshold.THEORY)]


for _claim, _directions, _says in (
    (
        "a-head",
        ALONE,
        "Heads of a rank below the input's dimensions keep the error 1 − rank/dims, whatever their number.",
    ),
    ("a-layer", LAYER, "Heads of one layer add up: the error stays above 1 − rank · heads/dims."),
    ("all-layers", ALL, "Heads of all layers add up: the error stays above 1 − rank · heads · layers/dims."),
):
    CLAIMS(f"floor-of-{_claim}", source=SOURCE, says=_says, experiment="apart", figure="floor")(
        partial(_above, _directions)
    )


@CLAIMS(
    "rank-used",
    source=SOURCE,
    says="A head uses about as many directions as inputs have, however much rank it is given.",
    experiment="heads",
    figure="rank-used",
)
def _rank_used(table: pd.DataFrame) -> list[Check]:
    checks = []
    for size, own in by_size(table):
        rows = used(own)
        fewest = int(rows["heads"].min())
        full = rows[rows["heads"] == fewest].sort_values("seed")
        what = f"95%-energy rank over the input's dimensions, fewest heads ({fewest}), {size}"
        checks.append(
            Check(
                what, tuple((full["energy_rank"] / full["asked"]).astype(float)), Between(1 / BEYOND, BEYOND)
            )
        )
    return checks
