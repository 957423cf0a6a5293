"""Encoders on points of any law, trained by amsel2024's recipe."""

from collections.abc import Sequence
from functools import partial

from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.lab import Job
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.batches import Pair
from rankscope.papers.amsel2024.training import train_stack
from rankscope.studies.text.batches import LawCell, LawsThere, batch, mean_cosine


def train_group(cells: Sequence[LawCell], job: Job) -> Weights:
    """Train the cells side by side, on fresh draws."""

    def batch_at(step: int) -> Pair:
        return batch(cells, Split.TRAIN, step, job.device)

    drawn_there = partial(LawsThere, cells, job.device)
    return train_stack(cells, _start(cells, job.device), batch_at, drawn_there, job)[0]


def _start(cells: Sequence[LawCell], device: str) -> Weights:
    """`Start.LAST_LAYER` of the recipe, with the law's own mean cosine."""
    weights = stacked_encoder.init(
        [cell.model for cell in cells],
        [cell.seed for cell in cells],
        tokens=cells[0].task.tokens,
        last_reach=1.0 if cells[0].model.layers > 1 else None,
        device=device,
    )
    for member, cell in enumerate(cells):
        weights["mlp_norm"][member, -1] = mean_cosine(cell.task, cell.seed)
    return weights
