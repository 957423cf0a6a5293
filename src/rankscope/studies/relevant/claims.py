"""The abstract's statement with k patterns: the rank of every update is the number of label-relevant patterns."""

from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, paper_claim
from rankscope.papers.li2024.claims import CLEARLY_WORSE, CONSTANT, TWO_GROUPS
from rankscope.papers.li2024.experiments import TASK
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL
from rankscope.papers.li2024.scaling import MARGIN, exponents, per_seed
from rankscope.theory.updates.relevant import Vote, mean_token_spread, readout_gains

GAP = 10.0
"""σ_k/σ_{k+1} from which the rest counts as nothing, as in figure 2 and remark 1."""


def rank_is(value: int) -> Between:
    """A measured rank whose mean rounds to that value."""
    return Between(value - 0.5, value + 0.5)


def vote(patterns: int, classes: int) -> Vote:
    """The experiments' vote with so many patterns and classes."""
    return Vote(TASK.patterns, patterns, classes, TASK.relevant_fraction, TASK.confusion_fraction)


def predicted_rank(patterns: int, classes: int) -> int:
    """The rank of the first ΔW_O by the closed form."""
    case = vote(patterns, classes)
    spread = mean_token_spread(case, TASK.tokens, TASK.dim, TASK.token_noise.level)
    return readout_gains(case, spread).rank(case)


def _follows(letter: str) -> Checks:
    """k singular values count, and the next is at least ten times smaller."""

    def checks(table: pd.DataFrame) -> list[Check]:
        found = []
        for count, rows in _by_count(table):
            name = f"ΔW_{letter.upper()} with k = {count}"
            found += [
                Check(f"rank of {name}", per_seed(rows, f"rank_{letter}"), rank_is(count)),
                Check(f"σ_k/σ_(k+1) of {name}", per_seed(rows, f"gap_{letter}"), AtLeast(GAP)),
            ]
        return found

    return checks


def _added(less: int, bound: AtLeast | AtMost) -> Checks:
    """The loss that truncation of every update to rank k − less adds."""

    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"loss added at rank {count - less} with k = {count}",
                per_seed(rows.assign(added=rows[f"loss_rank_{count - less}"] - rows["loss"]), "added"),
                bound,
            )
            for count, rows in _by_count(table)
        ]

    return checks


def _small_neurons(table: pd.DataFrame) -> list[Check]:
    found = []
    for count, rows in _by_count(table):
        found += [
            Check(f"variance between two groups of ‖Δo_i‖ with k = {count}",
                  per_seed(rows, "update_separation"), AtLeast(TWO_GROUPS)),
            Check(f"fraction in the lower with k = {count}",
                  per_seed(rows, "update_small_fraction"), AtLeast(CONSTANT)),
        ]  # fmt: skip
    return found


def _same_fraction(table: pd.DataFrame) -> list[Check]:
    slopes = exponents(table, "relevant_patterns", "update_small_fraction")
    return [Check("exponent in k of the fraction of small neurons", slopes, Between(-MARGIN, MARGIN))]


def _shared(letters: str, counts: str) -> Checks:
    """The rank of these updates is the number of `counts` (relevant_patterns or classes) where classes are fewer."""

    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"rank of ΔW_{letter.upper()} with {label}",
                per_seed(rows, f"rank_{letter}"),
                rank_is(rows[counts].iloc[0]),
            )
            for label, rows in table.groupby("vote", sort=False)
            for letter in letters
        ]

    return checks


def _first_update(table: pd.DataFrame) -> list[Check]:
    found = []
    for _, rows in table.groupby(["relevant_patterns", "classes"], sort=True):
        patterns, classes = int(rows["relevant_patterns"].iloc[0]), int(rows["classes"].iloc[0])
        found.append(
            Check(
                f"rank of the first ΔW_O with {patterns} patterns in {classes} classes",
                per_seed(rows, "first_rank_o"),
                rank_is(predicted_rank(patterns, classes)),
            )
        )
    return found


def _by_count(table: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    return [(int(str(count)), rows) for count, rows in table.groupby("relevant_patterns", sort=True)]


_claim = partial(paper_claim, "li2024")

CLAIMS = (
    *(
        _claim(f"relevant-{letter}", f"Abstract, W_{letter.upper()}",
               f"The rank of ΔW_{letter.upper()} is the number of label-relevant patterns: k with k patterns in k classes.",
               "rank k", "relevant", "relevant-rank", _follows(letter))
        for letter in LETTERS.values()
    ),
    _claim("relevant-truncation", "Figure 1A, k patterns", "Updates truncated to rank k test like full rank.",
           "rank k like full rank", "relevant", "relevant-truncation", _added(0, AtMost(LIKE_FULL))),
    _claim("relevant-truncation-less", "Figure 1A, k patterns", "Updates truncated to rank k − 1 are clearly worse.",
           "rank k − 1 clearly worse", "relevant", "relevant-truncation", _added(1, AtLeast(CLEARLY_WORSE))),
    _claim("relevant-small", "Remark 1, k patterns", "At every k a constant fraction of neurons changes clearly less.",
           "a constant fraction", "relevant", "relevant-neurons", _small_neurons),
    _claim("relevant-small-same", "Remark 1, k patterns", "The fraction of small neurons does not depend on k.",
           "exponent 0 in k", "relevant", "relevant-neurons", _same_fraction),
    _claim("relevant-first", "Closed form, first step", "The first ΔW_O has the rank of `relevant.theory.readout_gains`.",
           "rank k", "relevant", "relevant-spectrum", _first_update),
    _claim("classes-attention", "Abstract, W_Q and W_K", "With k patterns in c < k classes ΔW_Q and ΔW_K are of rank k.",
           "rank k", "classes", "relevant-rank", _shared("qk", "relevant_patterns")),
    _claim("classes-readout", "Abstract, W_V and W_O", "With k patterns in c < k classes ΔW_V and ΔW_O are of rank k.",
           "rank k", "classes", "relevant-rank", _shared("vo", "relevant_patterns")),
    _claim("classes-readout-classes", "Beyond the abstract",
           "With k patterns in c < k classes ΔW_V and ΔW_O are of rank c: they follow the classes.",
           "not in the paper", "classes", "relevant-rank", _shared("vo", "classes")),
    _claim("classes-first", "Closed form, first step",
           "With c < k classes, too, the first ΔW_O has the rank of `relevant.theory.readout_gains`.",
           "rank k", "classes", "relevant-spectrum", _first_update),
)  # fmt: skip
