"""What li2024 says of an update, its neurons and their pruning, asked of real data and of models that people use."""

from collections.abc import Callable

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, Claims, Origin
from rankscope.lab.tidy import WHOLE, paired, per_seed, rows_of
from rankscope.papers.li2024.claims import TWO_GROUPS
from rankscope.papers.li2024.scaling import MARGIN, exponents
from rankscope.studies.real.measurement import EVERY, LAST
from rankscope.studies.real.subjects import DIGITS, SUBJECTS
from rankscope.studies.real.training import CLASSES, Optimizer

LEARNED = 0.05
"""Accuracy that the update must add to the published encoder for its rank to mean something."""

HARMLESS = 0.02
"""Accuracy that may be lost and still count as no harm; twice that and more is harm."""

GAP = 10.0
"""Figure 2: from the third on, singular values are at least this many times smaller than the second."""

SHARE = 0.9
"""Of ‖ΔW‖²: how many directions hold it is the rank of an update here."""

_cases = {
    (subject, optimizer): Claims("li2024", Origin.BEYOND) for subject in SUBJECTS for optimizer in Optimizer
}


def _claims(
    name: str, *, source: str, says: str, value: str, figure: str, all_classes: bool = False
) -> Callable[[Checks], Checks]:
    """Claim what the decorated check decides of either optimizer, on sentences and on digits with the paper's two classes.

    With `all_classes`, on digits alone, with every number of classes.
    """

    def add(checks: Checks) -> Checks:
        for (subject, optimizer), claims in _cases.items():
            if all_classes and subject is not DIGITS:
                continue
            claims(
                f"{subject.name}-{name}-{optimizer.value.lower()}",
                source=source,
                says=f"{says} {subject.tuned} with {optimizer.value}.",
                value=value,
                experiment=subject.name,
                figure=f"{subject.name}-{figure}",
            )(_of_cells(optimizer, all_classes, checks))
        return checks

    return add


def _of_cells(optimizer: Optimizer, all_classes: bool, checks: Checks) -> Checks:
    """The checks on the cells of one optimizer, with two classes unless all are asked for."""

    def chosen(table: pd.DataFrame) -> pd.DataFrame:
        rows = table[table["optimizer"] == optimizer.value]
        return rows if all_classes else rows[rows["classes"] == CLASSES]

    return lambda table: checks(chosen(table))


@_claims("gap", source="Figure 2, on real data", value="σ₂/σ₃ ≥ 10", figure="ranks",
         says="Two directions tower over the rest of ΔW, one a class.")  # fmt: skip
def _gap(table: pd.DataFrame) -> list[Check]:
    gaps = per_seed(rows_of(table, "update", stored="float32"), "gap")
    return [Check("σ₂/σ₃ of ΔW, median over the matrices", gaps, AtLeast(GAP))]


@_claims("energy", source="Remark 1, on real data", value="2", figure="ranks",
         says="ΔW is of rank 2, the number of classes: two directions hold nearly all of it.")  # fmt: skip
def _energy(table: pd.DataFrame) -> list[Check]:
    what = "directions that hold 0.9 of ‖ΔW‖², median over the matrices"
    return [Check(what, per_seed(_energy_ranks(table), "energy_rank"), AtMost(CLASSES))]


def _energy_ranks(table: pd.DataFrame, part: str = EVERY, layer: str = EVERY) -> pd.DataFrame:
    return rows_of(table, "energy rank", share=SHARE, part=part, layer=layer)


def _above_rounding(stored: str) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        what = f"directions of ΔW above the rounding of {stored}, median over the matrices"
        ranks = per_seed(rows_of(table, "update", stored=stored), "signal_rank")
        return [Check(what, ranks, Between(CLASSES - 0.5, CLASSES + 0.5))]

    return checks


_claims("signal", source="Remark 1, on real data", value="2", figure="ranks",
        says="As many directions of ΔW stand above rounding as there are classes.")(_above_rounding("float32"))  # fmt: skip
_claims("stored", source="Remark 1, on real data", value="2", figure="ranks",
        says="They do once both checkpoints are stored in bfloat16.")(_above_rounding("bfloat16"))  # fmt: skip


def _lost(table: pd.DataFrame, rows: pd.DataFrame) -> tuple[float, ...]:
    """The accuracy that the whole has over the truncated or pruned model of each row."""
    return per_seed(
        rows.assign(lost=paired(rows, rows_of(table, WHOLE), "accuracy") - rows["accuracy"]), "lost"
    )


def _truncated(part: int, bound: AtLeast | AtMost) -> Checks:
    """What every update loses when truncated to rank classes/part, wherever it had something to lose."""

    def checks(table: pd.DataFrame) -> list[Check]:
        found = []
        for classes in sorted(set(table["classes"])):
            rows = rows_of(table, "truncation", classes=classes)
            gained, lost = (_lost(table, rows[rows["rank"] == rank]) for rank in (0, classes // part))
            found += [
                Check(f"accuracy that the update adds, {classes} classes", gained, AtLeast(LEARNED), needed=True),
                Check(f"accuracy lost at rank {classes // part}, {classes} classes", lost, bound),
            ]  # fmt: skip
        return found

    return checks


_kept, _halved = _truncated(1, AtMost(HARMLESS)), _truncated(2, AtLeast(2 * HARMLESS))

_claims("rank-2", source="Figure 1, on real data", value="like full rank", figure="truncation",
        says="Every update truncated to rank 2 works like the whole.")(_kept)  # fmt: skip
_claims("rank-1", source="Figure 1, on real data", value="clearly worse", figure="truncation",
        says="Truncated to rank 1 it is clearly worse.")(_halved)  # fmt: skip


@_claims("sparse", source="Figure 3A, on real data", value="0.4 of the neurons in the lower", figure="neurons",
         says="Some neurons hardly move: their updates fall into two groups.")  # fmt: skip
def _sparse(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "neurons", of="update")
    return [
        Check(
            "share of the variance of ‖Δo_i‖ between two groups, median over layers",
            per_seed(rows, "separation"),
            AtLeast(TWO_GROUPS),
        ),
        Check("share of neurons in the lower", per_seed(rows, "small_fraction"), Between(0.3, 0.5)),
    ]


@_claims("smallest", source="Figure 3B, on real data", value="no harm up to 0.4", figure="neurons",
         says="Pruning the smallest neurons does no harm up to 0.4.")  # fmt: skip
def _smallest(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"accuracy lost without the smallest {share}",
            _lost(table, rows_of(table, "pruning", order="smallest", fraction=share)),
            AtMost(HARMLESS),
        )
        for share in (0.4, 0.2)
    ]


@_claims("largest", source="Corollary 1, on real data", value="harm grows with R", figure="neurons",
         says="Pruning the largest neurons hurts, and more than pruning the smallest.")  # fmt: skip
def _largest(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "pruning", fraction=0.4)
    largest, smallest = (rows[rows["order"] == order] for order in ("largest", "smallest"))
    more = largest.assign(more=paired(largest, smallest, "accuracy") - largest["accuracy"])
    return [
        Check("accuracy lost without the largest 0.4", _lost(table, largest), AtLeast(2 * HARMLESS)),
        Check("and more than without the smallest 0.4", per_seed(more, "more"), AtLeast(HARMLESS)),
    ]


AS_CLASSES, CONSTANT = Between(1 - MARGIN, 1 + MARGIN), Between(-MARGIN, MARGIN)
"""What an exponent in the number of classes must be."""


def _exponent(rows: pd.DataFrame, which: str, bound: Between) -> Check:
    what = f"exponent in the classes of the directions that hold 0.9 of ‖ΔW‖², {which}"
    return Check(what, exponents(rows, "classes", "energy_rank"), bound)


@_claims("classes", source="Remark 1, on real data", value="rank = classes", figure="classes", all_classes=True,
         says="The rank of ΔW grows as the number of classes does.")  # fmt: skip
def _proportional(table: pd.DataFrame) -> list[Check]:
    return [_exponent(_energy_ranks(table), "the median matrix", AS_CLASSES)]


@_claims("parts", source="Beyond the paper's two patterns, on real data", value="exponents 1 and 0", figure="classes",
         all_classes=True,
         says="The ranks of ΔW_V and ΔW_O grow as the classes do; those of ΔW_Q and ΔW_K stay, for the kinds of image do.",
         )  # fmt: skip
def _by_part(table: pd.DataFrame) -> list[Check]:
    bounds = {"V": AS_CLASSES, "O": AS_CLASSES, "Q": CONSTANT, "K": CONSTANT}
    return [_exponent(_energy_ranks(table, part), f"W_{part}", bound) for part, bound in bounds.items()]


@_claims("last", source="Remark 1, on real data", value="rank = classes", figure="classes", all_classes=True,
         says="In the last layer, which the head reads, the ranks of ΔW_O and ΔW_down grow as the classes do.")  # fmt: skip
def _last(table: pd.DataFrame) -> list[Check]:
    return [
        _exponent(_energy_ranks(table, part, LAST), f"the last W_{part}", AS_CLASSES)
        for part in ("O", "down")
    ]


_claims("rank-classes", source="Figure 1, on real data", value="like full rank", figure="classes", all_classes=True,
        says="Every update truncated to as many directions as classes works like the whole.")(_kept)  # fmt: skip
_claims("rank-half", source="Figure 1, on real data", value="clearly worse", figure="classes", all_classes=True,
        says="Truncated to half as many directions as classes it is clearly worse.")(_halved)  # fmt: skip

CLAIMS = tuple(claim for claims in _cases.values() for claim in claims)
