"""Encoders on points of any law, trained by amsel2024's recipe."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from rankscope import kernels
from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Leaves
from rankscope.kernels.error import squared_error as fused_squared_error
from rankscope.lab import Job
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.training import squared_error
from rankscope.studies.text.batches import LawCell, LawsThere, batch, mean_cosine
from rankscope.training.adamw import adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.state import ResumeState


def train_group(cells: Sequence[LawCell], job: Job) -> Weights:
    """Train the cells side by side, on fresh draws."""
    device, train, stack = job.device, cells[0].train, [cell.model for cell in cells]
    settings = train.replace(learning_rate=train.learning_rate * stack[0].layers ** -train.depth_power)
    tokens = cells[0].task.tokens
    program = stacked_encoder.program_for(stack, tokens, device, train.precision.dtype)

    error_of = fused_squared_error if kernels.usable(device) else squared_error

    def losses(leaves: Leaves, pair: tuple[Tensor, Tensor]) -> Tensor:
        return error_of(stacked_encoder.encode(stack, leaves, pair[0], tokens, program), pair[1])

    def batch_at(step: int) -> tuple[Tensor, Tensor]:
        points, answers = batch(cells, Split.TRAIN, step, device)
        return stacked_encoder.arrange(stack, points, program), stacked_encoder.arrange(
            stack, answers, program
        )

    fit: Callable[..., Any] = partial(adamw, batch_at=batch_at)
    if kernels.usable(device):
        fit = partial(adamw, batch_at=LawsThere(cells, device).arranged(program), kind=GraphedStep)
    with train.precision.in_use():
        leaves, _ = fit(
            stacked_encoder.leaves_of(_start(cells, device), program),
            losses_of=losses,
            settings=settings,
            steps=job.steps,
            loss_scale=train.precision.loss_scale,
            checkpoint=None if job.state is None else ResumeState(job.state),
            tick=job.tick,
        )
    return stacked_encoder.weights_of(leaves)


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
