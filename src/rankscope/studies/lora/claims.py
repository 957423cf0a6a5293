"""What remark 1 suggests for LoRA: held to the rank of the update from the start, training ends as it would in full."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Checks, Claims, Origin
from rankscope.lab.tidy import per_seed
from rankscope.papers.li2024.claims import CLEARLY_WORSE
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.lora.experiments import FULL
from rankscope.studies.lora.rates import CONVENTIONS

MORE_STEPS = 1.25
"""How many times the steps of full training still count as about as many."""

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


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


claims("lora-two", source="Remark 1, LoRA", value="rank 2 like full", experiment="lora", figure="lora",
       says="Held to rank 2 from the start, training ends with the loss of full training.",
       )(_loss_added(2, AtMost(LIKE_FULL)))  # fmt: skip
claims("lora-one", source="Remark 1, LoRA", value="rank 1 clearly worse", experiment="lora", figure="lora",
       says="Held to rank 1, below the number of patterns, it ends clearly worse.",
       )(_loss_added(1, AtLeast(CLEARLY_WORSE)))  # fmt: skip


@claims("lora-steps", source="Beyond the paper", value=f"≤ {MORE_STEPS:g} times the steps", experiment="lora", figure="lora",
        says="Rank 2 takes about as many steps as full training, or fewer.")  # fmt: skip
def _steps(table: pd.DataFrame) -> list[Check]:
    return [
        Check(
            f"steps of rank 2 over those of full training, {name}",
            compared(rows(table), 2, "converged_step", np.divide),
            AtMost(MORE_STEPS),
        )
        for name, rows in CONVENTIONS.items()
    ]


@claims("lora-parts", source="Beyond the paper", value="rank 2 like full", experiment="lora-parts", figure="lora-parts",
        says="Rank 2 is enough, too, in W_Q, W_K and W_V alone, and in W_O alone.")  # fmt: skip
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


claims("lora-relevant", source="Abstract, LoRA", value="rank k like full", experiment="lora-relevant", figure="lora-relevant",
       says="With k patterns, training held to rank k ends with the loss of full training.",
       )(_patterns(1, AtMost(LIKE_FULL)))  # fmt: skip
claims("lora-relevant-less", source="Abstract, LoRA", value="rank < k clearly worse", experiment="lora-relevant",
       figure="lora-relevant", says="With k patterns, training held to rank k/2 ends clearly worse.",
       )(_patterns(2, AtLeast(CLEARLY_WORSE)))  # fmt: skip
