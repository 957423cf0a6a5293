"""The abstract's statement with k patterns: the rank of every update is the number of label-relevant patterns."""

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Checks, Claims, Origin
from rankscope.lab.tidy import WHOLE, paired, per_seed, rows_of
from rankscope.papers.li2024.claims import CLEARLY_WORSE, CONSTANT, TWO_GROUPS
from rankscope.papers.li2024.experiments import TASK
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL
from rankscope.papers.li2024.scaling import MARGIN, exponents
from rankscope.theory.updates.relevant import Vote, mean_token_spread, readout_gains

GAP = 10.0
"""σ_k/σ_{k+1} from which the rest counts as nothing, as in figure 2 and remark 1."""

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


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


def _by_count(rows: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    return [(int(str(count)), part) for count, part in rows.groupby("relevant_patterns", sort=True)]


def _follows(letter: str) -> Checks:
    """k singular values count, and the next is at least ten times smaller."""

    def checks(table: pd.DataFrame) -> list[Check]:
        found = []
        for count, rows in _by_count(rows_of(table, "update", matrix=letter)):
            name = f"ΔW_{letter.upper()} with k = {count}"
            found += [
                Check(f"rank of {name}", per_seed(rows, "numerical_rank"), rank_is(count)),
                Check(f"σ_k/σ_(k+1) of {name}", per_seed(rows, "gap"), AtLeast(GAP)),
            ]
        return found

    return checks


for _letter in LETTERS.values():
    claims(f"relevant-{_letter}", source=f"Abstract, W_{_letter.upper()}", value="rank k",
           experiment="relevant", figure="relevant-rank", origin=Origin.READING,
           says=f"The rank of ΔW_{_letter.upper()} is the number of label-relevant patterns: k with k patterns in k classes.",
           )(_follows(_letter))  # fmt: skip


def _added(less: int, bound: AtLeast | AtMost) -> Checks:
    """The loss that truncation of every update to rank k − less adds."""

    def checks(table: pd.DataFrame) -> list[Check]:
        rows = rows_of(table, "truncation")
        rows = rows[rows["rank"] == rows["relevant_patterns"] - less]
        rows = rows.assign(added=rows["loss"] - paired(rows, rows_of(table, WHOLE), "loss"))
        return [
            Check(f"loss added at rank {count - less} with k = {count}", per_seed(part, "added"), bound)
            for count, part in _by_count(rows)
        ]

    return checks


claims("relevant-truncation", source="Figure 1A, k patterns", value="rank k like full rank",
       experiment="relevant", figure="relevant-truncation",
       says="Updates truncated to rank k test like full rank.")(_added(0, AtMost(LIKE_FULL)))  # fmt: skip
claims("relevant-truncation-less", source="Figure 1A, k patterns", value="rank k − 1 clearly worse",
       experiment="relevant", figure="relevant-truncation",
       says="Updates truncated to rank k − 1 are clearly worse.")(_added(1, AtLeast(CLEARLY_WORSE)))  # fmt: skip


@claims("relevant-small", source="Remark 1, k patterns", value="a constant fraction",
        experiment="relevant", figure="relevant-neurons",
        says="At every k a constant fraction of neurons changes clearly less.")  # fmt: skip
def _small_neurons(table: pd.DataFrame) -> list[Check]:
    found = []
    for count, rows in _by_count(rows_of(table, "neurons", of="update")):
        found += [
            Check(f"variance between two groups of ‖Δo_i‖ with k = {count}",
                  per_seed(rows, "separation"), AtLeast(TWO_GROUPS)),
            Check(f"fraction in the lower with k = {count}", per_seed(rows, "small_fraction"), AtLeast(CONSTANT)),
        ]  # fmt: skip
    return found


@claims("relevant-small-same", source="Remark 1, k patterns", value="exponent 0 in k",
        experiment="relevant", figure="relevant-neurons",
        says="The fraction of small neurons does not depend on k.")  # fmt: skip
def _same_fraction(table: pd.DataFrame) -> list[Check]:
    slopes = exponents(rows_of(table, "neurons", of="update"), "relevant_patterns", "small_fraction")
    return [Check("exponent in k of the fraction of small neurons", slopes, Between(-MARGIN, MARGIN))]


def _first_update(table: pd.DataFrame) -> list[Check]:
    found = []
    rows = rows_of(table, "first update", matrix="o")
    for _, part in rows.groupby(["relevant_patterns", "classes"], sort=True):
        patterns, classes = int(part["relevant_patterns"].iloc[0]), int(part["classes"].iloc[0])
        found.append(
            Check(
                f"rank of the first ΔW_O with {patterns} patterns in {classes} classes",
                per_seed(part, "numerical_rank"),
                rank_is(predicted_rank(patterns, classes)),
            )
        )
    return found


claims("relevant-first", source="Closed form, first step", value="rank k",
       experiment="relevant", figure="relevant-spectrum",
       says="The first ΔW_O has the rank of `relevant.theory.readout_gains`.")(_first_update)  # fmt: skip


def _shared(letters: str, counts: str) -> Checks:
    """The rank of these updates is the number of `counts` (relevant_patterns or classes) where classes are fewer."""

    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"rank of ΔW_{letter.upper()} with {label}",
                per_seed(rows[rows["matrix"] == letter], "numerical_rank"),
                rank_is(rows[counts].iloc[0]),
            )
            for label, rows in rows_of(table, "update").groupby("vote", sort=False)
            for letter in letters
        ]

    return checks


claims("classes-attention", source="Abstract, W_Q and W_K", value="rank k",
       experiment="classes", figure="relevant-rank", origin=Origin.READING,
       says="With k patterns in c < k classes ΔW_Q and ΔW_K are of rank k.")(_shared("qk", "relevant_patterns"))  # fmt: skip
claims("classes-readout", source="Abstract, W_V and W_O", value="rank k",
       experiment="classes", figure="relevant-rank", origin=Origin.READING,
       says="With k patterns in c < k classes ΔW_V and ΔW_O are of rank k.")(_shared("vo", "relevant_patterns"))  # fmt: skip
claims("classes-readout-classes", source="Beyond the abstract", value="not in the paper",
       experiment="classes", figure="relevant-rank",
       says="With k patterns in c < k classes ΔW_V and ΔW_O are of rank c: they follow the classes.",
       )(_shared("vo", "classes"))  # fmt: skip
claims("classes-first", source="Closed form, first step", value="rank k",
       experiment="classes", figure="relevant-spectrum",
       says="With c < k classes, too, the first ΔW_O has the rank of `relevant.theory.readout_gains`.",
       )(_first_update)  # fmt: skip
