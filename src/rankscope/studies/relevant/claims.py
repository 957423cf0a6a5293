"""The abstract's statement with k patterns: the rank of every update is the number of label-relevant patterns."""

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin
from rankscope.lab.seeds import by_seed
from rankscope.lab.tidy import WHOLE, paired, rows_of
from rankscope.papers.li2024.claims import CLEARLY_WORSE
from rankscope.papers.li2024.experiments import TASK
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.theory.updates.relevant import Vote

COUNTED = {"relevant_patterns": "patterns", "classes": "classes"}

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def vote(patterns: int, classes: int) -> Vote:
    """The experiments' vote with so many patterns and classes."""
    return Vote(TASK.patterns, patterns, classes, TASK.relevant_fraction, TASK.confusion_fraction)


def _rank_off(table: pd.DataFrame, letters: str, counts: str) -> list[Check]:
    """For each matrix, how far its rank is from what it should count, at worst."""
    found = []
    for letter in letters:
        own = rows_of(table, "update", matrix=letter)
        off = by_seed(own, (own["numerical_rank"] - own[counts]).abs(), "max")
        what = f"greatest distance of the rank of ΔW_{letter.upper()} from the {COUNTED[counts]}"
        found.append(Check(what, off, AtMost(0.5), "ranks are whole numbers"))
    return found


claims("relevant-rank", source="Abstract", value="rank k", experiment="relevant", figure="relevant-rank",
       origin=Origin.READING,
       says="The rank of every update is the number of label-relevant patterns: k with k patterns in k classes.")(
    lambda table: _rank_off(table, "qkvo", "relevant_patterns"))  # fmt: skip
claims("classes-rank", source="Beyond the abstract", value="rank k in all four", experiment="classes", figure="relevant-rank",
       says="With k patterns in c < k classes ΔW_Q and ΔW_K are of rank k, ΔW_V and ΔW_O of rank c.")(
    lambda table: [*_rank_off(table, "qk", "relevant_patterns"), *_rank_off(table, "vo", "classes")])  # fmt: skip


@claims("relevant-truncation", source="Figure 1A, k patterns", value="rank k like full rank, k − 1 clearly worse",
        experiment="relevant", figure="relevant-truncation",
        says="Updates truncated to rank k test like full rank, and to rank k − 1 clearly worse.")  # fmt: skip
def _needed(table: pd.DataFrame) -> list[Check]:
    rows = rows_of(table, "truncation")
    rows = rows.assign(added=rows["loss"] - paired(rows, rows_of(table, WHOLE), "loss"))
    at_k, below = (rows[rows["rank"] == rows["relevant_patterns"] - less] for less in (0, 1))
    return [
        Check("greatest loss added at rank k", by_seed(at_k, at_k["added"], "max"), AtMost(LIKE_FULL)),
        Check(
            "least loss added at rank k − 1", by_seed(below, below["added"], "min"), AtLeast(CLEARLY_WORSE)
        ),
    ]
