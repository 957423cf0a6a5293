"""What remark 1 suggests for LoRA: held to the rank of the update from the start, training ends as it would in full."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin
from rankscope.lab.tidy import per_seed
from rankscope.papers.li2024.claims import CLEARLY_WORSE
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.lora.experiments import FULL
from rankscope.studies.lora.rates import CONVENTIONS

claims = CLAIMS = Claims("li2024", Origin.BEYOND)


def _added(table: pd.DataFrame, rank: int) -> np.ndarray:
    """The loss that a rank adds to that of full training, seed by seed."""
    held, full = (
        np.array(per_seed(table[table["adapter_rank"] == label], "loss")) for label in (str(rank), FULL)
    )
    return np.asarray(held - full)


def _loss_added(rank: int, bound: AtLeast | AtMost, table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"loss added by rank {rank}, {name}", tuple(_added(rows(table), rank).tolist()), bound)
        for name, rows in CONVENTIONS.items()
    ]


claims("lora-two", source="Remark 1, LoRA", value="rank 2 like full", experiment="lora", figure="lora",
       says="Held to rank 2 from the start, training ends with the loss of full training.",
       )(partial(_loss_added, 2, AtMost(LIKE_FULL)))  # fmt: skip
claims("lora-one", source="Remark 1, LoRA", value="rank 1 clearly worse", experiment="lora", figure="lora",
       says="Held to rank 1, below the number of patterns, training ends clearly worse.",
       )(partial(_loss_added, 1, AtLeast(CLEARLY_WORSE)))  # fmt: skip


@claims("lora-relevant", source="Abstract, LoRA", value="rank k like full", experiment="lora-relevant", figure="lora-relevant",
        says="With k patterns, training held to rank k ends with the loss of full training.")  # fmt: skip
def _patterns(table: pd.DataFrame) -> list[Check]:
    """The greatest over k of the loss that adapters of rank k add with k patterns in k classes."""
    added = [_added(rows, int(str(count))) for count, rows in table.groupby("relevant_patterns", sort=True)]
    greatest = tuple(np.max(added, axis=0).tolist())
    return [Check("greatest loss over k that rank k adds", greatest, AtMost(LIKE_FULL))]
