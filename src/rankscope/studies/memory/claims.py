"""Who learns the rule, and who only remembers?

The thresholds are conventions, chosen after a look at one seed at `quick` and one at `paper`: a gap of a quarter of all
answers is memory, one of a tenth is not, and three quarters of the border are below it. The border is theory's, for two
bits per parameter.
"""

from functools import partial

import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin
from rankscope.lab.seeds import by_seed
from rankscope.studies.memory.measures import countable, with_memory
from rankscope.theory.memory import BITS_PER_PARAMETER

MEMORY, RULE = 0.25, 0.1
"""Share of answers that a model knows on what it was trained on beyond new points: memory, and none to speak of."""

BELOW, BEYOND = 0.75, 8.0
"""Distinct batches over the border: clearly below it, and clearly beyond it."""

CLAIMS = Claims("amsel2024", Origin.BEYOND)
_claim = partial(CLAIMS, source="memory against rule", experiment="memory")


@_claim(
    "memory-border",
    says="Low-rank heads remember the answers while these fit into two bits per parameter, and learn the rule when there is "
    "eight times as much.",
    figure="memory-border",
)
def _low_rank_remembers_up_to_the_border(table: pd.DataFrame) -> list[Check]:
    checks = []
    known = with_memory(table)
    low = known[known["rank"] < known["dim"]]
    for (shape, rank), rows in low.groupby(["shape", "rank"], sort=False):
        over = rows["batches"] / rows["border"]
        below, beyond = rows[over <= BELOW], rows[over >= BEYOND]
        remembered, kept = by_seed(below, below["gap"], "min"), by_seed(beyond, beyond["gap"], "max")
        checks += [
            Check(f"least gap below the border, {shape}, rank {rank}", remembered, AtLeast(MEMORY)),
            Check(f"largest gap beyond it, {shape}, rank {rank}", kept, AtMost(RULE)),
        ]
    return checks


@_claim(
    "memory-capacity",
    says="What is remembered stays under two bits per parameter.",
    value="about 2 bits in language models",
    figure="memory-bits",
)
def _memory_is_bounded(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"bits per parameter, {shape}, rank {rank}",
            by_seed(rows, rows["bits"], "max"),
            AtMost(BITS_PER_PARAMETER),
        )
        for (shape, rank), rows in countable(with_memory(table)).groupby(["shape", "rank"], sort=False)
    ]


@_claim(
    "memory-rule",
    says="Full rank finds the rule from so few batches that low rank only remembers them.",
    figure="memory-border",
)
def _full_rank_finds_the_rule(table: pd.DataFrame) -> list[Check]:
    checks = []
    for shape, rows in with_memory(table).groupby("shape", sort=False):
        few = rows[rows["batches"] <= rows["border"]]
        answered = few[few["batches"] == few["batches"].max()].pivot(
            index="seed", columns="rank", values="answered"
        )
        full = int(rows["dim"].iloc[0])
        ahead = answered[full] - answered.drop(columns=full).max(axis=1)
        what = f"new points answered at full rank beyond the best lower one, {shape}, {few['batches'].max()} batches"
        checks.append(Check(what, tuple(ahead.astype(float)), AtLeast(MEMORY)))
    return checks
