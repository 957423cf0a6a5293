"""What remark 1 suggests for LoRA: held to the rank of the update from the start, training ends as it would in full."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Checks, paper_claim
from rankscope.papers.li2024.claims import CLEARLY_WORSE
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.papers.li2024.scaling import per_seed
from rankscope.studies.lora.experiments import FULL
from rankscope.studies.lora.rates import CONVENTIONS

MORE_STEPS = 1.25
"""How many times the steps of full training still count as about as many."""


def compared(
    table: pd.DataFrame, rank: int, column: str, how: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[float, ...]:
    """`how` of a rank's column and full training's, seed by seed."""
    held, full = (
        np.array(per_seed(table[table["adapter_rank"] == label], column)) for label in (str(rank), FULL)
    )
    return tuple(how(held, full).tolist())


def _loss_added(rank: int, bound: AtLeast | AtMost) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"loss added by rank {rank}, {name}", compared(rows(table), rank, "loss", np.subtract), bound
            )
            for name, rows in CONVENTIONS.items()
        ]

    return checks


def _steps(rank: int) -> Checks:
    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"steps of rank {rank} over those of full training, {name}",
                compared(rows(table), rank, "converged_step", np.divide),
                AtMost(MORE_STEPS),
            )
            for name, rows in CONVENTIONS.items()
        ]

    return checks


def _parts(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"loss with rank 2 in {part} alone", per_seed(rows, "loss"), AtMost(CLEARLY_WORSE))
        for part, rows in table[table["adapter_rank"] == 2].groupby("adapted", sort=False)
        if part != "all"
    ]


def _patterns(part: int, bound: AtLeast | AtMost) -> Checks:
    """The loss that adapters of rank k/part add with k patterns in k classes."""

    def checks(table: pd.DataFrame) -> list[Check]:
        return [
            Check(
                f"loss added by rank {int(str(count)) // part} with k = {count}",
                compared(rows, int(str(count)) // part, "loss", np.subtract),
                bound,
            )
            for count, rows in table.groupby("relevant_patterns", sort=True)
        ]

    return checks


_claim = partial(paper_claim, "li2024")

CLAIMS = (
    _claim("lora-two", "Remark 1, LoRA", "Held to rank 2 from the start, training ends with the loss of full training.",
           "rank 2 like full", "lora", "lora", _loss_added(2, AtMost(LIKE_FULL))),
    _claim("lora-one", "Remark 1, LoRA", "Held to rank 1, below the number of patterns, it ends clearly worse.",
           "rank 1 clearly worse", "lora", "lora", _loss_added(1, AtLeast(CLEARLY_WORSE))),
    _claim("lora-steps", "Beyond the paper", "Rank 2 takes about as many steps as full training, or fewer.",
           f"≤ {MORE_STEPS:g} times the steps", "lora", "lora", _steps(2)),
    _claim("lora-parts", "Beyond the paper", "Rank 2 is enough, too, in W_Q, W_K and W_V alone, and in W_O alone.",
           "rank 2 like full", "lora_parts", "lora-parts", _parts),
    _claim("lora-relevant", "Abstract, LoRA", "With k patterns, training held to rank k ends with the loss of full training.",
           "rank k like full", "lora_relevant", "lora-relevant", _patterns(1, AtMost(LIKE_FULL))),
    _claim("lora-relevant-less", "Abstract, LoRA", "With k patterns, training held to rank k/2 ends clearly worse.",
           "rank < k clearly worse", "lora_relevant", "lora-relevant", _patterns(2, AtLeast(CLEARLY_WORSE))),
)  # fmt: skip
