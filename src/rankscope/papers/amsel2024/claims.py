"""Every statement of the talk that was trained, built or bounded, as a check over all seeds.

An encoder that did not train has no error here: its value is missing, and a check with a missing value is undecided.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, paper_claim
from rankscope.papers.amsel2024.simulation import Kind

SOLVED = 0.1
"""Error that counts as having learned the task; the constant answer has 1."""

CLEARLY = 2.0
"""Factor between two errors from which the larger is clearly worse."""

SEVERAL = 4.0
"""Factor for one layer, where the talk calls the result crystal clear."""

ALIKE = 0.95
"""Ratio of errors from which a change does not help."""


def _full_rank_one_layer(table: pd.DataFrame) -> list[Check]:
    one = table[table["layers"] == 1]
    checks = []
    for budget in _values(one, "budget"):
        full, low = _full_and_low(one[one["budget"] == budget])
        checks += [
            Check(f"error at full rank, budget {budget}", _seeds(full), AtMost(SOLVED)),
            Check(
                f"log₂ of best lower rank over full rank, budget {budget}",
                _log2(low.min(axis=1, skipna=False) / full),
                AtLeast(math.log2(SEVERAL)),
            ),
        ]
    return checks  # fmt: skip


def _budget_does_not_rescue(table: pd.DataFrame) -> list[Check]:
    one = table[table["layers"] == 1]
    budgets = _values(one, "budget")
    full, _ = _full_and_low(one[one["budget"] == budgets[0]])
    _, low = _full_and_low(one[one["budget"] == budgets[-1]])
    return [
        Check(f"log₂ of rank {rank} at budget {budgets[-1]} over full rank at budget {budgets[0]}",
              _log2(low[rank] / full), AtLeast(math.log2(CLEARLY)))
        for rank in low.columns
    ]  # fmt: skip


def _depth_helps(table: pd.DataFrame) -> list[Check]:
    checks = []
    for budget in _values(table, "budget"):
        of = {layers: _full_and_low(rows)[1] for layers, rows in _by_depth(table[table["budget"] == budget])}
        shallow, deep = min(of), max(of)
        ratio = _typical(of[deep] / of[shallow])
        checks.append(
            Check(
                f"low-rank error, {deep} layers over {shallow}, budget {budget}", _seeds(ratio), AtMost(ALIKE)
            )
        )
    return checks


def _low_rank_stays_behind(table: pd.DataFrame) -> list[Check]:
    checks = []
    for budget in _values(table, "budget"):
        for layers, rows in _by_depth(table[table["budget"] == budget]):
            if layers > 1:
                full, low = _full_and_low(rows)
                checks.append(
                    Check(f"log₂ of best lower rank over full rank, {layers} layers, budget {budget}",
                          _log2(low.min(axis=1, skipna=False) / full), AtLeast(math.log2(CLEARLY)))
                )  # fmt: skip
    return checks


def _deepest_is_no_worse(table: pd.DataFrame) -> list[Check]:
    standard = table[table["budget"] == table["budget"].min()]
    of = {layers: _errors(rows, "rank") for layers, rows in _by_depth(standard)}
    *_, before, deepest = sorted(of)
    ratio = _typical(of[deepest] / of[before])
    return [Check(f"error of {deepest} layers over {before}, budget {standard['budget'].iloc[0]}",
                  _seeds(ratio), AtMost(1 / ALIKE))]  # fmt: skip


def _minus_identity(table: pd.DataFrame) -> list[Check]:
    full = table[(table["layers"] == 1) & (table["rank"] == table["dim"])]
    checks = []
    for budget in _values(full, "budget"):
        rows = full[full["budget"] == budget].set_index("seed")
        checks += [
            Check(f"angle of W_KᵀW_Q to +I, budget {budget}", _seeds(rows["angle"]), AtLeast(165.0)),
            Check(f"c/√rank, budget {budget}", _seeds(rows["sharpness"]), AtLeast(5.0)),
        ]
    return checks


def _additive_does_not_help(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"additive over none, {layers} layers", _seeds(_typical(ratio)), AtLeast(ALIKE))
        for layers, ratio in _against_none(table, "additive")
    ]


def _concatenated_helps_with_depth(table: pd.DataFrame) -> list[Check]:
    ratios = dict(_against_none(table, "concatenated"))
    shallow, deep = min(ratios), max(ratios)
    return [
        Check(f"concatenated over none, {deep} layers", _seeds(_typical(ratios[deep])), AtMost(0.8)),
        Check(f"concatenated over none, {shallow} layer", _seeds(_typical(ratios[shallow])), AtLeast(0.85)),
    ]


def _tokens_hurt_low_rank(table: pd.DataFrame) -> list[Check]:
    fewest, *_, most = _values(table, "tokens")
    (full_few, low_few), (full_many, low_many) = (
        _full_and_low(table[table["tokens"] == tokens]) for tokens in (fewest, most)
    )
    return [
        *(Check(f"error added from {fewest} to {most} tokens at rank {rank}",
                _seeds(low_many[rank] - low_few[rank]), AtLeast(SOLVED)) for rank in low_few.columns),
        Check(f"error added from {fewest} to {most} tokens at full rank", _seeds(full_many - full_few), AtMost(SOLVED)),
    ]  # fmt: skip


def _heads_hurt(table: pd.DataFrame) -> list[Check]:
    checks = []
    for dim in _values(table, "dim"):
        errors = _errors(table[table["dim"] == dim], "rank")
        ranks = sorted(int(rank) for rank in errors.columns)
        checks += [
            Check(f"log₂, dim {dim}: {dim // low} heads over {dim // high} at equal parameters",
                  _log2(errors[low] / errors[high]), AtLeast(0.0))
            for low, high in pairwise(ranks)
        ]  # fmt: skip
    return checks


def _above_the_floor(table: pd.DataFrame) -> list[Check]:
    bounded = table[table["floor"] > 0]
    return [
        Check(
            f"error over floor, {heads} heads of rank {rank}",
            tuple(rows["error"] / rows["floor"]),
            AtLeast(1.0),
        )
        for (rank, heads), rows in bounded.groupby(["rank", "heads"], sort=True)
    ]


def _as_predicted(kind: Kind, margin: float) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        rows = table[table["construction"].str.contains(kind.value)]
        return [
            Check(f"measured over exact, {name}", tuple(cells["measured"] / cells["predicted"]),
                  Between(1 - margin, 1 + margin))
            for name, cells in rows.groupby("construction", sort=False)
        ]  # fmt: skip

    return checks


def _exact(table: pd.DataFrame) -> list[Check]:
    rows = table[table["construction"].str.contains(Kind.HARDMAX.value)]
    return [
        Check(f"error, {name}", tuple(cells["measured"]), AtMost(1e-12))
        for name, cells in rows.groupby("construction", sort=False)
    ]


def _errors(table: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Error by seed (rows) and `axis` (columns); missing where the cell did not train."""
    known = table.assign(error=table["error"].where(table["trained"].astype(bool)))
    return known.pivot(index="seed", columns=axis, values="error").sort_index()


def _full_and_low(table: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """The errors at full rank, and those at every lower one."""
    errors = _errors(table, "rank")
    full = table["dim"].iloc[0]
    return errors[full], errors.drop(columns=full)


def _against_none(table: pd.DataFrame, kind: str) -> list[tuple[int, pd.DataFrame]]:
    """At each depth, low-rank errors with positions over those without."""
    low = table[table["rank"] < table["dim"]]
    return [
        (
            layers,
            _errors(rows[rows["positions"] == kind], "rank")
            / _errors(rows[rows["positions"] == "none"], "rank"),
        )
        for layers, rows in _by_depth(low)
    ]


def _typical(ratios: pd.DataFrame) -> Any:
    """Geometric mean over ranks; missing if one of them is."""
    return np.exp(ratios.map(np.log).mean(axis=1, skipna=False))


def _by_depth(table: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    return [(layers, table[table["layers"] == layers]) for layers in _values(table, "layers")]


def _values(table: pd.DataFrame, column: str) -> list[int]:
    return sorted(int(value) for value in table[column].unique())


def _log2(ratios: Any) -> tuple[float, ...]:
    """A factor a seed on its natural scale: an interval of ratios themselves would reach below zero."""
    return tuple(math.log2(ratio) for ratio in ratios)


def _seeds(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


_claim = partial(paper_claim, "amsel2024")

CLAIMS = (
    _claim("one-layer", "Experiments, figure 1", "One layer: full rank is necessary and sufficient.",
           "0.7 at half rank, 0.0155 at full", "figure1", "1", _full_rank_one_layer),
    _claim("budget", "Experiments, figure 1", "One layer: low rank stays weak even with dim³ parameters.",
           "0.31 to 0.65 against 0.0155", "figure1", "1", _budget_does_not_rescue),
    _claim("depth-helps", "Experiments, figure 1", "More layers make low-rank transformers better.",
           "0.83 to 0.58 to 0.41 at rank 1, dim^2.5", "figure1", "1", _depth_helps),
    _claim("depth-behind", "Experiments, figure 1", "With more layers low rank is still much weaker than full rank.",
           "factor 3 to 70 at half rank", "figure1", "1", _low_rank_stays_behind),
    _claim("depth-artefact", "Experiments, figure 1", "Five layers being worse than three at dim² is an artefact of "
           "training.", "0.60 to 0.91, called junk", "figure1", "1", _deepest_is_no_worse),
    _claim("identity", "What full rank learns", "One layer, full rank: W_KᵀW_Q is close to −c·I with c large.",
           "168° to 180°, norm 1470 to 2400", "figure1", "identity", _minus_identity),
    _claim("additive", "Modifying attention", "Learned positions that are added do not help.",
           "ratio about 1", "positions", "positions", _additive_does_not_help),
    _claim("concatenated", "Modifying attention", "Positions that are appended help low rank, but only with depth.",
           "0.58 to 0.13 (3 layers), 0.83 to 0.75 (one), rank 1", "positions", "positions",
           _concatenated_helps_with_depth),
    _claim("tokens", "Role of N", "More points make the task harder for low rank only.",
           "0.02 to 1.17 at rank 1, 0.006 to 0.04 at full", "tokens", "tokens", _tokens_hurt_low_rank),
    _claim("heads", "Motivation; role of d", "Adding heads at equal parameters (rank = dim/heads) makes a model worse.",
           "worse with every doubling", "dims", "dims", _heads_hurt),
    _claim("floor", "Theorem 2, computed", "No trained layer of heads is better than the lower bound, where it applies: "
           "two points, attention alone.", "error ≥ floor", "two_points", "floor", _above_the_floor),
    _claim("hardmax", "Upper bound", "One full-rank hardmax head is exact for any number of points.",
           "0", "constructions", "constructions", _exact),
    _claim("softmax", "Upper bound, softmax", "With softmax(β Xᵀy) its error falls with β as the exact integral says.",
           "ratio 1", "constructions", "constructions", _as_predicted(Kind.SOFTMAX, 0.1)),
    _claim("majority", "What about more layers?", "Two layers of rank-1 heads: the vote fails as often as the exact "
           "formula says.", "ratio 1", "constructions", "constructions", _as_predicted(Kind.MAJORITY, 0.1)),
    _claim("random", "Representing sgn, tightness", "Random rank-1 heads with the best weights have their exact error.",
           "ratio 1", "constructions", "constructions", _as_predicted(Kind.RANDOM, 0.1)),
)  # fmt: skip
