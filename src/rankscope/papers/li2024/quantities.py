"""What theorem 1 bounds: where each number is in the table, and what the page calls it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rankscope.lab.tidy import rows_of

SIGNS = {"plus": ">", "minus": "<"}
"""The two kinds of neurons, by the sign of a_i."""

ROWS = {"o": "o_i", "update": "Δo_i"}
"""(11) to (13) are read of a neuron's trained row and of its update."""


@dataclass(frozen=True)
class Quantity:
    """A column of a measurement at some coordinates."""

    label: str
    measurement: str
    column: str
    at: Mapping[str, str]

    def along(self, table: pd.DataFrame, axis: str) -> pd.DataFrame:
        """Its `value` at every size on the axis, one per seed; T is the step of the cell."""
        rows = rows_of(table, self.measurement, **self.at)
        return rows.rename(columns={self.column: "value"})[[*dict.fromkeys((axis, "seed", "step")), "value"]]


PAIRS = {
    "relevant to itself": "μᵀΔW{}μ, relevant μ",
    "relevant to relevant": "μ'ᵀΔW{}μ, both relevant",
    "relevant to irrelevant": "μ'ᵀΔW{}μ, relevant μ, irrelevant μ'",
    "irrelevant to relevant": "μ'ᵀΔW{}μ, irrelevant μ, relevant μ'",
    "irrelevant to itself": "μᵀΔW{}μ, irrelevant μ",
    "irrelevant to irrelevant": "μ'ᵀΔW{}μ, both irrelevant",
}


def aligned(matrix: str, pair: str, which: str) -> Quantity:
    """The least, mean or greatest μ'ᵀΔWμ over the pairs of a kind."""
    label = f"{which} {PAIRS[pair].format('_' + matrix.upper())}"
    return Quantity(label, "alignment", which, {"matrix": matrix, "pair": pair})


def outside(column: str, of: str, sign: str) -> Quantity:
    """√m times how far the neurons outside ℒ reach along another pattern, `on_other`, or how long they are, `norm`."""
    what = {"on_other": f"|{ROWS[of]}·μ_other|", "norm": f"‖{ROWS[of]}‖"}[column]
    label = f"√m × greatest {what} outside ℒ, a {SIGNS[sign]} 0"
    return Quantity(label, "outside", column, {"of": of, "sign": sign})
