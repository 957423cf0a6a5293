"""What the talk says of models that need no training, as checks over all seeds."""

from functools import partial
from typing import Any

import pandas as pd

from rankscope.lab import AtMost, Between, Check, Claims, Origin
from rankscope.papers.amsel2024.simulation import Kind

AS_EXACT = Between(0.9, 1.1)
"""A measured error over the exact one of the same model."""

COMPUTED = "computed, within a tenth by convention"

CLAIMS = Claims("amsel2024")
_as_computed = partial(
    CLAIMS, value="ratio 1", experiment="constructions", figure="constructions", origin=Origin.READING
)


@CLAIMS(
    "hardmax",
    source="Upper bound",
    says="One full-rank hardmax head is exact for any number of points.",
    value="0",
    experiment="constructions",
    figure="constructions",
)
def _hardmax_is_exact(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"error, {name}", tuple(cells["measured"]), AtMost(1e-12), "the talk's 0, up to rounding")
        for name, cells in _built(table, Kind.HARDMAX)
    ]


def _as_predicted(kind: Kind, table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"measured over exact, {name}", tuple(cells["measured"] / cells["predicted"]), AS_EXACT, COMPUTED
        )
        for name, cells in _built(table, kind)
    ]


_as_computed(
    "softmax",
    source="Upper bound, softmax",
    says="The error of a full-rank softmax head, softmax(β Xᵀy), falls with β as the exact integral says.",
)(partial(_as_predicted, Kind.SOFTMAX))
_as_computed(
    "majority",
    source="What about more layers?",
    says="Two layers of rank-1 heads: the vote fails as often as the exact formula says.",
)(partial(_as_predicted, Kind.MAJORITY))
_as_computed(
    "random",
    source="Representing sgn, tightness",
    says="Random rank-1 heads with the best weights have the error that the exact formula gives.",
)(partial(_as_predicted, Kind.RANDOM))


def _built(table: pd.DataFrame, kind: Kind) -> Any:
    """The rows of each construction of a kind."""
    return table[table["construction"].str.contains(kind.value)].groupby("construction", sort=False)
