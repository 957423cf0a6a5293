"""What the talk says of trained encoders and heads, as checks over all seeds.

An encoder that did not train has no error here: its value is missing, and a check with a missing value is undecided.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin, Threshold

SOLVED = 0.1
"""Error that counts as having learned the task; the constant answer has 1."""

CLEARLY = 2.0
"""Factor between two errors from which the larger is clearly worse."""

SEVERAL = 4.0
"""Factor for one layer, where the talk calls the result crystal clear."""

ALIKE = 0.95
"""Ratio of errors from which a change does not help."""

FACTOR = "a convention: the talk says much weaker, and gives curves"
BY_ERROR = "a convention, beside the error 1 of a constant answer"
NO_HELP = "a convention: 5% are no help"

CLAIMS = Claims("amsel2024")
_figure_1 = partial(CLAIMS, source="Experiments, figure 1", experiment="figure1", figure="1")
_positions = partial(CLAIMS, source="Modifying attention", experiment="positions", figure="positions")


@_figure_1(
    "one-layer",
    says="One layer: full rank is necessary and sufficient.",
    value="0.7 at half rank, 0.0155 at full",
)
def _full_rank_one_layer(table: pd.DataFrame) -> list[Check]:
    checks = []
    for budget, rows in table[table["layers"] == 1].groupby("budget"):
        full, _ = _full_and_low(rows)
        behind, by = f"log₂ of best lower rank over full rank, budget {budget}", AtLeast(math.log2(SEVERAL))
        checks.append(Check(f"error at full rank, budget {budget}", _seeds(full), AtMost(SOLVED), BY_ERROR))
        checks.append(Check(behind, _best_low_over_full(rows), by, FACTOR))
    return checks


@_figure_1(
    "budget",
    says="One layer: low rank stays weak even with dim³ parameters.",
    value="0.31 to 0.65 against 0.0155",
)
def _budget_does_not_rescue(table: pd.DataFrame) -> list[Check]:
    budgets = list(table[table["layers"] == 1].groupby("budget"))
    (least, standard), (most, widest) = budgets[0], budgets[-1]
    (full, _), (_, low) = _full_and_low(standard), _full_and_low(widest)
    where = f"at budget {most} over full rank at budget {least}"
    return [
        Check(f"log₂ of rank {rank} {where}", _log2(low[rank] / full), AtLeast(math.log2(CLEARLY)), FACTOR)
        for rank in low.columns
    ]


@_figure_1(
    "depth-helps",
    says="More layers make low-rank transformers better.",
    value="0.83 to 0.58 to 0.41 at rank 1, dim^2.5",
)
def _depth_helps(table: pd.DataFrame) -> list[Check]:
    checks = []
    for budget, rows in table.groupby("budget"):
        depths = list(rows.groupby("layers"))
        (shallow, first), (deep, last) = depths[0], depths[-1]
        ratio = _typical(_full_and_low(last)[1] / _full_and_low(first)[1])
        what = f"low-rank error, {deep} layers over {shallow}, budget {budget}"
        checks.append(Check(what, ratio, AtMost(ALIKE), NO_HELP))
    return checks


@_figure_1(
    "depth-behind",
    says="With more layers low rank is still much weaker than full rank.",
    value="factor 3 to 70 at half rank",
)
def low_rank_stays_behind(table: pd.DataFrame) -> list[Check]:
    """With several layers the best lower rank errs clearly more than full rank, at every depth and budget."""
    return [
        Check(
            f"log₂ of best lower rank over full rank, {layers} layers, budget {budget}",
            _best_low_over_full(rows),
            AtLeast(math.log2(CLEARLY)),
            FACTOR,
        )
        for (budget, layers), rows in table[table["layers"] > 1].groupby(["budget", "layers"])
    ]


@_figure_1(
    "depth-artefact",
    says="Five layers being worse than three at dim² is an artefact of training.",
    value="0.60 to 0.91, called junk",
)
def _deepest_is_no_worse(table: pd.DataFrame) -> list[Check]:
    (budget, standard), *_ = table.groupby("budget")
    *_, (before, shorter), (deepest, longest) = standard.groupby("layers")
    ratio = _typical(_errors(longest) / _errors(shorter))
    return [
        Check(f"error of {deepest} layers over {before}, budget {budget}", ratio, AtMost(1 / ALIKE), NO_HELP)
    ]


@CLAIMS(
    "identity",
    source="What full rank learns",
    says="One layer, full rank: W_KᵀW_Q is close to −c·I with c large.",
    value="168° to 180°, norm 1470 to 2400",
    experiment="figure1",
    figure="identity",
)
def _minus_identity(table: pd.DataFrame) -> list[Check]:
    checks = []
    for budget, rows in table[(table["layers"] == 1) & (table["rank"] == table["dim"])].groupby("budget"):
        checks += [
            Check(
                f"angle of W_KᵀW_Q to +I, budget {budget}",
                _seeds(rows["angle"]),
                AtLeast(165.0),
                "just under the least of the talk's, 168.5°",
            ),
            Check(
                f"c/√rank, budget {budget}",
                _seeds(rows["sharpness"]),
                AtLeast(5.0),
                "a convention: e⁵ between scores that differ by 1 is near hardmax",
            ),
        ]
    return checks


@_positions("additive", says="Learned positions that are added do not help.", value="ratio about 1")
def _additive_does_not_help(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"additive over none, {layers} layers", ratio, AtLeast(ALIKE), NO_HELP)
        for layers, ratio in _against_none(table, "additive")
    ]


@_positions(
    "concatenated",
    says="Positions that are appended help low rank, but only with depth.",
    value="0.58 to 0.13 (3 layers), 0.83 to 0.75 (one), rank 1",
)
def _concatenated_helps_with_depth(table: pd.DataFrame) -> list[Check]:
    depths = _against_none(table, "concatenated")
    (shallow, early), (deep, late) = depths[0], depths[-1]
    return [
        Check(
            f"concatenated over none, {deep} layers",
            late,
            AtMost(0.8),
            "a convention between the talk's 0.22 and no help",
        ),
        Check(f"concatenated over none, {shallow} layer", early, AtLeast(0.85), "just under the talk's 0.90"),
    ]


@CLAIMS(
    "tokens",
    source="Role of N",
    says="More points make the task harder for low rank only.",
    value="0.02 to 1.17 at rank 1, 0.006 to 0.04 at full",
    experiment="tokens",
    figure="tokens",
    origin=Origin.READING,
)
def _tokens_hurt_low_rank(table: pd.DataFrame) -> list[Check]:
    (fewest, few), *_, (most, many) = table.groupby("tokens")
    (full_few, low_few), (full_many, low_many) = _full_and_low(few), _full_and_low(many)
    added = f"error added from {fewest} to {most} tokens"
    return [
        *(
            Check(
                f"{added} at rank {rank}", _seeds(low_many[rank] - low_few[rank]), AtLeast(SOLVED), BY_ERROR
            )
            for rank in low_few.columns
        ),
        Check(f"{added} at full rank", _seeds(full_many - full_few), AtMost(SOLVED), BY_ERROR),
    ]


@CLAIMS(
    "heads",
    source="Motivation; role of d",
    says="Adding heads at equal parameters (rank = dim/heads) makes a model worse.",
    value="worse with every doubling",
    experiment="dims",
    figure="dims",
    origin=Origin.READING,
)
def _heads_hurt(table: pd.DataFrame) -> list[Check]:
    checks = []
    for _, rows in table.groupby("dim"):
        dim, errors = int(rows["dim"].iloc[0]), _errors(rows)
        for low, high in pairwise(sorted(int(rank) for rank in errors.columns)):
            what = f"log₂, dim {dim}: {dim // low} heads over {dim // high} at equal parameters"
            checks.append(Check(what, _log2(errors[low] / errors[high]), AtLeast(0.0), "the talk's: worse"))
    return checks


@CLAIMS(
    "floor",
    source="Theorem 2, computed",
    says="No trained layer of heads is better than the lower bound, where it applies: two points, attention alone.",
    value="error ≥ floor",
    experiment="two-points",
    figure="floor",
    origin=Origin.READING,
)
def _above_the_floor(table: pd.DataFrame) -> list[Check]:
    over = table.assign(ratio=table["error"] / table["floor"])[table["floor"] > 0]
    return [
        Check(
            f"error over floor, {heads} heads of rank {rank}",
            tuple(rows["ratio"]),
            AtLeast(1.0),
            Threshold.THEORY,
        )
        for (rank, heads), rows in over.groupby(["rank", "heads"], sort=True)
    ]


def _errors(table: pd.DataFrame) -> pd.DataFrame:
    """Error by seed (rows) and rank (columns); missing where the cell did not train."""
    known = table.assign(error=table["error"].where(table["trained"].astype(bool)))
    return known.pivot(index="seed", columns="rank", values="error").sort_index()


def _full_and_low(table: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """The errors at full rank, and those at every lower one."""
    errors = _errors(table)
    full = table["dim"].iloc[0]
    return errors[full], errors.drop(columns=full)


def _best_low_over_full(table: pd.DataFrame) -> tuple[float, ...]:
    full, low = _full_and_low(table)
    return _log2(low.min(axis=1, skipna=False) / full)


def _against_none(table: pd.DataFrame, kind: str) -> Sequence[tuple[object, tuple[float, ...]]]:
    """At each depth, low-rank errors with positions over those without."""
    ratios = []
    for layers, rows in table[table["rank"] < table["dim"]].groupby("layers"):
        with_kind, without = (_errors(rows[rows["positions"] == name]) for name in (kind, "none"))
        ratios.append((layers, _typical(with_kind / without)))
    return ratios


def _typical(ratios: pd.DataFrame) -> tuple[float, ...]:
    """Geometric mean over ranks; missing if one of them is."""
    return _seeds(np.exp(ratios.map(np.log).mean(axis=1, skipna=False)))


def _log2(ratios: Any) -> tuple[float, ...]:
    """A factor a seed on its natural scale: an interval of ratios themselves would reach below zero."""
    return tuple(math.log2(ratio) for ratio in ratios)


def _seeds(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
