"""What theorem 1 bounds: where each number stands in the table, and what the page calls it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd

from rankscope.lab.tidy import rows_of

SIGNS = {"plus": ">", "minus": "<"}
"""The two kinds of neurons, by the sign of a_i."""

ROWS = {"o": "o_i", "update": "Δo_i"}
"""What (11) to (13) say of a neuron's row is said of the trained row and of its update."""


@dataclass(frozen=True)
class Quantity:
    """A column of a measurement at some coordinates; a bound on it bounds every row there, so the least or the greatest."""

    label: str
    measurement: str
    column: str
    at: Mapping[str, Collection[str]]

    def least(self, table: pd.DataFrame, axis: str) -> pd.DataFrame:
        """The least `value` at every place of the axis and seed."""
        return self._extreme(table, axis, "min")

    def greatest(self, table: pd.DataFrame, axis: str) -> pd.DataFrame:
        """The greatest `value` at every place of the axis and seed."""
        return self._extreme(table, axis, "max")

    def _extreme(self, table: pd.DataFrame, axis: str, which: str) -> pd.DataFrame:
        rows = rows_of(table, self.measurement)
        for name, labels in self.at.items():
            rows = rows[rows[name].isin(labels)]
        found = rows.groupby([axis, "seed"])[self.column]
        return found.agg(lambda values: getattr(values.to_numpy(), which)()).rename("value").reset_index()


def _aligned(label: str, column: str, *matrices: str) -> Quantity:
    return Quantity(label, "alignment", column, {"matrix": matrices})


QK_RELEVANT_SELF = _aligned("μᵀΔWμ (Q, K; relevant μ)", "relevant_self", "q", "k")
QK_RELEVANT_LEAK = _aligned("μ'ᵀΔWμ (Q, K; relevant μ)", "relevant_leak", "q", "k")
Q_ONTO_RELEVANT = _aligned("μ'ᵀΔW_Qμ (irrelevant μ, relevant μ')", "irrelevant_to_relevant", "q")
K_ONTO_RELEVANT = _aligned("μ'ᵀΔW_Kμ (irrelevant μ, relevant μ')", "irrelevant_to_relevant", "k")
QK_IRRELEVANT_SELF = _aligned("μᵀΔWμ (Q, K; irrelevant μ)", "irrelevant_self_greatest", "q", "k")
QK_IRRELEVANT_LEAK = _aligned("μ'ᵀΔWμ (Q, K; both irrelevant)", "irrelevant_to_irrelevant", "q", "k")
V_RELEVANT_SELF = _aligned("μᵀΔW_Vμ (relevant μ)", "relevant_self", "v")
V_RELEVANT_LEAK = _aligned("μ'ᵀΔW_Vμ (relevant μ)", "relevant_leak", "v")
V_IRRELEVANT_SELF = _aligned("μᵀΔW_Vμ (irrelevant μ)", "irrelevant_self_least", "v")
V_IRRELEVANT_LEAK = _aligned("μ'ᵀΔW_Vμ (irrelevant μ)", "irrelevant_leak", "v")


def large_on_own(of: str, sign: str) -> Quantity:
    """How far the neurons of ℒ reach along their own pattern."""
    label = f"|{ROWS[of]}·μ_own|, in ℒ, a {SIGNS[sign]} 0"
    return Quantity(label, "directions", "large_on_own", {"of": [of], "sign": [sign]})


def small_on_other(of: str, sign: str) -> Quantity:
    """How far the neurons outside ℒ reach along any other pattern."""
    label = f"|{ROWS[of]}·μ_other|, outside ℒ, a {SIGNS[sign]} 0"
    return Quantity(label, "directions", "small_on_other", {"of": [of], "sign": [sign]})


def small_norm(of: str) -> Quantity:
    """How large the neurons outside ℒ are."""
    return Quantity(f"‖{ROWS[of]}‖ outside ℒ", "neurons", "small_norm", {"of": [of]})
