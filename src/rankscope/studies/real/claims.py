"""Three questions to real data, the same for digits and for sentences. Every number was fixed before anything was run.

1. Does the rank that an update needs follow the task? The theory's answer is an exponent of 1 in the classes, the answer of a
   rank that has nothing to do with them is 0: half-way between decides. And permuted labels, with the same classes, images and
   steps, must need more.
2. Do as many directions recur in two halves of the data as the theory counts: kinds for W_Q and W_K, classes for W_V and W_O?
   Directions count as shared beyond those that permuted labels share. From 2 to 8 the theory adds 6, chance none: 3 decides.
3. Does pruning the smallest neurons first cost less than pruning at random, and than the largest first? Where the order
   means nothing the areas between the curves are 0.
"""

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin, Threshold
from rankscope.lab.tidy import rows_of
from rankscope.studies.real.measurement import HELD_OUT, SEEN

HALF_WAY = "half-way between chance and the theory's prediction"

claims = CLAIMS = Claims("li2024", Origin.BEYOND)

QUESTIONS = {
    "needed": "The rank that updates need ({}) follows the task: it grows with the classes, and permuted labels need more.",
    "shared": "Updates learned from two halves of the data ({}) share the directions that the theory counts.",
    "pruning": "Pruning the smallest neurons first ({}) costs less than pruning at random or the largest first.",
}


def per_seed_mean(rows: pd.DataFrame, column: str) -> "pd.Series[float]":
    """The column's mean over the rows of each seed: both halves, parts and settings. Missing if one of them is."""
    return rows.groupby("seed", sort=True)[column].agg(lambda values: values.mean(skipna=False))


def labelled(table: pd.DataFrame, labels: str) -> pd.DataFrame:
    """The rows of fine-tunings on true or on permuted labels."""
    return table[table["labels"] == labels]


def all_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the tasks with the most kinds, where kinds are counted."""
    return rows[rows["kinds"] == rows["kinds"].max()] if "kinds" in rows else rows


def _exponents(rows: pd.DataFrame) -> tuple[float, ...]:
    """The slope of log₂ of the needed rank against log₂ of the classes, by least squares, one per seed."""
    return tuple(
        float(np.polyfit(np.log2(some["classes"].astype(float)), some["needed_log2"], 1)[0])
        if some["needed_log2"].notna().all()
        else float("nan")
        for _, some in rows.groupby("seed", sort=True)
    )


def _needed(table: pd.DataFrame) -> list[Check]:
    checks = []
    for name, rows in rows_of(table, "needed rank").groupby("optimizer", sort=False):
        held_out = all_kinds(rows[rows["on"] == HELD_OUT])
        seen = rows[rows["on"] == SEEN]
        more = per_seed_mean(labelled(seen, "permuted"), "needed_log2") - per_seed_mean(
            labelled(seen, "true"), "needed_log2"
        )
        checks += [
            Check(
                f"exponent in the classes of the rank that keeps 0.95 of the gain, {name}",
                _exponents(held_out),
                AtLeast(0.5),
                HALF_WAY,
            ),
            Check(
                f"log₂ of the rank needed with permuted labels over that with true ones, {name}",
                tuple(more),
                AtLeast(0.0),
                Threshold.NULL,
            ),
        ]
    return checks


def beyond_permuted(table: pd.DataFrame, parts: str, **at: int) -> "pd.Series[float]":
    """How many more directions the two halves share with true labels than with permuted ones, one value per seed."""
    rows = rows_of(table, "shared", **at)
    rows = rows[rows["part"].isin(list(parts))]
    return per_seed_mean(labelled(rows, "true"), "shared") - per_seed_mean(
        labelled(rows, "permuted"), "shared"
    )


def _grows(
    rows: pd.DataFrame, name: object, parts: str, over: str, bound: AtLeast | AtMost, **at: int
) -> Check:
    """How many directions more are shared at 8 kinds, or classes, than at 2."""
    added = beyond_permuted(rows, parts, **{over: 8}, **at) - beyond_permuted(rows, parts, **{over: 2}, **at)
    named = " and ".join(f"ΔW_{part}" for part in parts)
    what = f"shared directions that {named} gain from 2 to 8 {over}, {name}"
    return Check(what, tuple(added), bound, HALF_WAY)


def _shared_digits(table: pd.DataFrame) -> list[Check]:
    return [
        check
        for name, rows in table.groupby("optimizer", sort=False)
        for check in (
            _grows(rows, name, "QK", "kinds", AtLeast(3.0), classes=2),
            _grows(rows, name, "VO", "classes", AtLeast(3.0), kinds=8),
            _grows(rows, name, "VO", "kinds", AtMost(3.0), classes=2),
        )
    ]


def _shared_sentences(table: pd.DataFrame) -> list[Check]:
    return [
        _grows(rows, name, "VO", "classes", AtLeast(3.0))
        for name, rows in table.groupby("optimizer", sort=False)
    ]


def area(rows: pd.DataFrame, order: str) -> "pd.Series[float]":
    """The mean loss over the fractions pruned in that order, one value per seed."""
    return per_seed_mean(rows[rows["order"] == order], "loss")


def _pruning(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"area between the losses of pruning {what} and the smallest first, {name}",
            tuple(area(rows, order) - area(rows, "smallest")),
            AtLeast(0.0),
            Threshold.NULL,
        )
        for name, rows in rows_of(table, "pruning").groupby("optimizer", sort=False)
        for order, what in (("random", "at random"), ("largest", "the largest first"))
    ]


for _experiment, _name, _shared in (
    ("digits", "a small ViT on digits", _shared_digits),
    ("real", "MiniLM on sentences", _shared_sentences),
):
    for _question, _checks in (("needed", _needed), ("shared", _shared), ("pruning", _pruning)):
        claims(f"{_experiment}-{_question}", source=f"Beyond the paper: {_name}", experiment=_experiment,
               figure=f"{_experiment}-{_question}", says=QUESTIONS[_question].format(_name))(_checks)  # fmt: skip
