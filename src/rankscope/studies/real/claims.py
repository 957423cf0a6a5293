"""What li2024 says of an update, its neurons and their pruning, asked of real data and of models that people use."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, paper_claim
from rankscope.papers.li2024.claims import TWO_GROUPS
from rankscope.papers.li2024.scaling import MARGIN, exponents, per_seed
from rankscope.studies.real.subjects import DIGITS, SUBJECTS
from rankscope.studies.real.training import CLASSES, Optimizer

LEARNED = 0.05
"""Accuracy that the update must add to the published encoder for its rank to mean something."""

HARMLESS = 0.02
"""Accuracy that may be lost and still count as no harm; twice that and more is harm."""

GAP = 10.0
"""Figure 2: from the third on, singular values are at least this many times smaller than the second."""


def _gap(table: pd.DataFrame) -> list[Check]:
    return [
        Check("σ₂/σ₃ of ΔW, median over the matrices", per_seed(table, "median_gap"), AtLeast(GAP)),
    ]


def _energy(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            "directions that hold 0.9 of ‖ΔW‖², median over the matrices",
            per_seed(table, "median_energy@0.90"),
            AtMost(CLASSES),
        )
    ]


def _above_rounding(kind: str, column: str) -> Callable[[pd.DataFrame], list[Check]]:
    what = f"directions of ΔW above the rounding of {kind}, median over the matrices"
    return lambda table: [
        Check(what, per_seed(table, f"median_{column}"), Between(CLASSES - 0.5, CLASSES + 0.5))
    ]


def _kept(table: pd.DataFrame, classes: int) -> list[Check]:
    return [
        Check(
            f"accuracy that the update adds, {classes} classes", _gained(table), AtLeast(LEARNED), needed=True
        ),
        Check(
            f"accuracy lost at rank {classes}, {classes} classes",
            _lost(table, f"rank_{classes}"),
            AtMost(HARMLESS),
        ),
    ]


def _halved(table: pd.DataFrame, classes: int) -> list[Check]:
    half = classes // 2
    return [
        Check(
            f"accuracy that the update adds, {classes} classes", _gained(table), AtLeast(LEARNED), needed=True
        ),
        Check(
            f"accuracy lost at rank {half}, {classes} classes",
            _lost(table, f"rank_{half}"),
            AtLeast(2 * HARMLESS),
        ),
    ]


def _sparse(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            "share of the variance of ‖Δo_i‖ between two groups, median over layers",
            per_seed(table, "update_separation"),
            AtLeast(TWO_GROUPS),
        ),
        Check("share of neurons in the lower", per_seed(table, "update_small_fraction"), Between(0.3, 0.5)),
    ]


def _smallest(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"accuracy lost without the smallest {share}", _lost(table, f"smallest_{share}"), AtMost(HARMLESS)
        )
        for share in (0.4, 0.2)
    ]


def _largest(table: pd.DataFrame) -> list[Check]:
    more = table["accuracy_smallest_0.4"] - table["accuracy_largest_0.4"]
    return [
        Check("accuracy lost without the largest 0.4", _lost(table, "largest_0.4"), AtLeast(2 * HARMLESS)),
        Check("and more than without the smallest 0.4", _values(table, more), AtLeast(HARMLESS)),
    ]


def _proportional(table: pd.DataFrame) -> list[Check]:
    return [_exponent(table, "the median matrix", "median_energy@0.90", Between(1 - MARGIN, 1 + MARGIN))]


def _by_part(table: pd.DataFrame) -> list[Check]:
    classes, kinds = Between(1 - MARGIN, 1 + MARGIN), Between(-MARGIN, MARGIN)
    bounds = {"V": classes, "O": classes, "Q": kinds, "K": kinds}
    return [_exponent(table, f"W_{part}", f"energy@0.90_{part}", bound) for part, bound in bounds.items()]


def _last(table: pd.DataFrame) -> list[Check]:
    bound = Between(1 - MARGIN, 1 + MARGIN)
    return [
        _exponent(table, f"the last W_{part}", f"last_energy@0.90_{part}", bound) for part in ("O", "down")
    ]


def _exponent(table: pd.DataFrame, which: str, column: str, bound: Between) -> Check:
    what = f"exponent in the classes of the directions that hold 0.9 of ‖ΔW‖², {which}"
    return Check(what, exponents(table, "classes", column), bound)


def _at_every_count(
    checks: Callable[[pd.DataFrame, int], list[Check]],
) -> Callable[[pd.DataFrame], list[Check]]:
    """The checks at every number of classes."""
    return lambda table: [
        check
        for count in sorted(set(table["classes"]))
        for check in checks(table[table["classes"] == count], count)
    ]


def _gained(table: pd.DataFrame) -> tuple[float, ...]:
    return _values(table, table["accuracy"] - table["accuracy_rank_0"])


def _lost(table: pd.DataFrame, tag: str) -> tuple[float, ...]:
    return _values(table, table["accuracy"] - table[f"accuracy_{tag}"])


def _values(table: pd.DataFrame, column: "pd.Series[float]") -> tuple[float, ...]:
    return per_seed(table.assign(value=column), "value")


def of_optimizer(optimizer: Optimizer, checks: Callable[[pd.DataFrame], list[Check]]) -> Checks:
    """The checks on the cells of one optimizer."""
    return lambda table: checks(table[table["optimizer"] == optimizer.value])


def _two(checks: Callable[[pd.DataFrame], list[Check]]) -> Callable[[pd.DataFrame], list[Check]]:
    """The checks on the task with the paper's two classes."""
    return lambda table: checks(table[table["classes"] == CLASSES])


STATEMENTS = (
    ("gap", "Figure 2, on real data", "Two directions tower over the rest of ΔW, one a class.", "σ₂/σ₃ ≥ 10",
     "ranks", _gap),
    ("energy", "Remark 1, on real data", "ΔW is of rank 2, the number of classes: two directions hold nearly all of it.",
     "2", "ranks", _energy),
    ("signal", "Remark 1, on real data", "As many directions of ΔW stand above rounding as there are classes.",
     "2", "ranks", _above_rounding("float32", "signal_rank")),
    ("stored", "Remark 1, on real data", "They do once both checkpoints are stored in bfloat16.",
     "2", "ranks", _above_rounding("bfloat16", "signal_rank_bf16")),
    ("rank-2", "Figure 1, on real data", "Every update truncated to rank 2 works like the whole.",
     "like full rank", "truncation", partial(_kept, classes=CLASSES)),
    ("rank-1", "Figure 1, on real data", "Truncated to rank 1 it is clearly worse.",
     "clearly worse", "truncation", partial(_halved, classes=CLASSES)),
    ("sparse", "Figure 3A, on real data", "Some neurons hardly move: their updates fall into two groups.",
     "0.4 of the neurons in the lower", "neurons", _sparse),
    ("smallest", "Figure 3B, on real data", "Pruning the smallest neurons does no harm up to 0.4.",
     "no harm up to 0.4", "neurons", _smallest),
    ("largest", "Corollary 1, on real data", "Pruning the largest neurons hurts, and more than pruning the smallest.",
     "harm grows with R", "neurons", _largest),
)  # fmt: skip

OF_CLASSES = (
    ("classes", "Remark 1, on real data", "The rank of ΔW grows as the number of classes does.",
     "rank = classes", "classes", _proportional),
    ("parts", "Beyond the paper's two patterns, on real data",
     "The ranks of ΔW_V and ΔW_O grow as the classes do; those of ΔW_Q and ΔW_K stay, for the kinds of image do.",
     "exponents 1 and 0", "classes", _by_part),
    ("last", "Remark 1, on real data",
     "In the last layer, which the head reads, the ranks of ΔW_O and ΔW_down grow as the classes do.",
     "rank = classes", "classes", _last),
    ("rank-classes", "Figure 1, on real data", "Every update truncated to as many directions as classes works like the whole.",
     "like full rank", "classes", _at_every_count(_kept)),
    ("rank-half", "Figure 1, on real data", "Truncated to half as many directions as classes it is clearly worse.",
     "clearly worse", "classes", _at_every_count(_halved)),
)  # fmt: skip
"""What can be asked where the number of classes varies."""

_claim = partial(paper_claim, "li2024")

CLAIMS = tuple(
    _claim(
        f"{subject.name}-{name}-{optimizer.value.lower()}",
        source,
        f"{statement} {subject.tuned} with {optimizer.value}.",
        value,
        subject.name,
        f"{subject.name}-{figure}",
        of_optimizer(optimizer, checks),
    )
    for subject in SUBJECTS
    for optimizer in Optimizer
    for name, source, statement, value, figure, checks in (
        *((*words, _two(checks)) for *words, checks in STATEMENTS),
        *(OF_CLASSES if subject is DIGITS else ()),
    )
)
