"""What the paper says of learning in context, what the talk says of heads there, and what of it is a matter of time.

The talk's sentence is judged three times: by the error after equally many steps, which is what the talk compares; by the step
of the transition, in which the in-context solution appears; and by the error long after it. A claim of its own,
`heads-are-time`, says whether heads change the training time alone: then the transitions are apart, and long after them the
errors are not. An error is that with the most examples, where least squares has none. Long after the transition, and beside
least squares, a training decides nothing that was not at least twice as long as its transition, or whose loss has not come to
rest. On other functions than linear ones two trainings are compared once one of them has had its transition.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, Claims, Origin
from rankscope.lab.check import Threshold
from rankscope.lab.tidy import rows_of
from rankscope.papers.garg2022.measurement import ERRORS
from rankscope.papers.garg2022.quantities import (
    authors_heads,
    differences,
    doublings,
    end_errors,
    last,
    learned_errors,
    longest_by_size,
    settled_errors,
    transitions,
)
from rankscope.tasks.in_context import Shift

NEAR = 0.05
"""Difference of two errors up to which they are near each other, on a scale on which the answer 0 has error 1."""

APART = np.log2(1.25)
"""Least |log₂| of the ratio of two transitions that are apart, in the mean over seeds: a quarter of the shorter time."""

TALK = "the talk, in-context learning"

CLAIMS = Claims("garg2022")
_talk = partial(CLAIMS, source=TALK, experiment="heads")
_apart = partial(
    CLAIMS, source="rank and heads apart", experiment="apart", figure="apart", origin=Origin.BEYOND
)


@CLAIMS(
    "least-squares",
    source="Section 3, linear functions",
    says="A trained decoder is nearly as good as least squares at every number of examples.",
    experiment="heads",
    figure="heads",
)
def _near_least_squares(table: pd.DataFrame) -> list[Check]:
    checks = []
    for size, every in longest_by_size(table):
        own = authors_heads(size, every)
        rows = rows_of(own, ERRORS, shift=Shift.NONE.value)
        found = (rows["error"] - rows["least_squares"]).groupby(rows["seed"], sort=True).max()
        found = found.where(transitions(own).set_index("seed")["settled"])
        what = f"most error beyond least squares, over examples, {size}, {int(rows['heads'].iloc[0])} heads"
        checks.append(Check(what, tuple(found.astype(float)), AtMost(NEAR)))
    return checks


def _ends(table: pd.DataFrame) -> str:
    counts = sorted(int(each) for each in table["heads"].unique())
    return f"{counts[-1]} heads over {counts[0]}"


def _more(rows: pd.DataFrame, value: str, what: str) -> Check:
    """The value is greater with the most heads than with the fewest."""
    return Check(f"log₂ of the {what}", doublings(rows, value), AtLeast(0.0), Threshold.NULL)


def _of_every_size(check: Callable[[pd.DataFrame, str], Check]) -> Checks:
    """A check of each size of decoders, which is told the head counts and the size."""
    return lambda table: [check(own, f"{_ends(own)}, {size}") for size, own in longest_by_size(table)]


_talk(
    "more-heads",
    says="At equal parameters and after equally many steps more heads are worse.",
    figure="heads",
)(_of_every_size(lambda own, where: _more(end_errors(own), "error", f"error, {where}")))
_talk(
    "more-heads-later",
    says="At equal parameters more heads come to the in-context solution later.",
    figure="heads-time",
    origin=Origin.READING,
)(_of_every_size(lambda own, where: _more(transitions(own), "reached", f"step of the transition, {where}")))
_talk(
    "more-heads-settled",
    says="At equal parameters more heads are worse long after the in-context solution has appeared.",
    figure="heads",
    origin=Origin.READING,
)(
    _of_every_size(
        lambda own, where: _more(settled_errors(own), "error", f"error, {where}, long after the transition")
    )
)


@_talk(
    "heads-are-time",
    says="At equal parameters heads change when the in-context solution appears, and not the error long after it.",
    figure="heads-time",
    origin=Origin.BEYOND,
)
def _heads_are_time(table: pd.DataFrame) -> list[Check]:
    checks = []
    for size, own in longest_by_size(table):
        where = f"{_ends(own)}, {size}"
        checks += [
            Check(
                f"log₂ of the step of the transition, to whichever side it is, {where}",
                _to_its_side(doublings(transitions(own), "reached")),
                AtLeast(APART),
            ),
            Check(
                f"difference of the errors long after it, {where}",
                differences(settled_errors(own)),
                Between(-NEAR, NEAR),
            ),
        ]
    return checks


def _to_its_side(values: tuple[float, ...]) -> tuple[float, ...]:
    """The values with the sign at which their mean is positive: seeds that disagree cancel, where sizes would add up."""
    side = -1.0 if np.mean(values) < 0 else 1.0
    return tuple(side * value for value in values)


def _rank_beyond_heads(rows: pd.DataFrame, value: str, what: str) -> Check:
    """How much more the logarithm falls with a doubling of rank than with one of heads, both over the same factor.

    It is the largest that both span on the grid, from the least rank and from the fewest heads on.
    """
    factor = min(rows[by].max() / rows[by].min() for by in ("rank", "heads"))
    slopes = [
        np.array(doublings(rows[rows[by] <= factor * rows[by].min()], value, by, other)) / np.log2(factor)
        for by, other in (("heads", "rank"), ("rank", "heads"))
    ]
    return Check(
        f"log₂ of the {what}: gained by a doubling of rank, beyond one of heads",
        tuple(float(each) for each in slopes[0] - slopes[1]),
        AtLeast(0.0),
        Threshold.NULL,
    )


_apart(
    "rank-counts",
    says="Doubling the rank of every head lowers the error more than doubling the number of heads.",
)(lambda table: [_rank_beyond_heads(end_errors(last(table)), "error", "error")])
_apart(
    "rank-counts-in-time",
    says="Doubling the rank of every head brings the transition forward more than doubling the number of heads.",
)(lambda table: [_rank_beyond_heads(transitions(last(table)), "reached", "step of the transition")])


@CLAIMS(
    "other-classes",
    source=f"{TALK}, a few other varieties",
    says="At equal parameters and after equally many steps more heads are worse on sparse functions, networks and trees.",
    experiment="classes",
    figure="classes",
)
def _other_classes(table: pd.DataFrame) -> list[Check]:
    return [
        _more(learned_errors(rows), "error", f"error, {_ends(rows)}, {functions}")
        for functions, rows in last(table).groupby("functions", sort=False)
    ]
