"""From cells to trained encoders: a group of amsel2024's cells, of any ranks, trained as one stack."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rankscope import kernels
from rankscope.core.streams import Split
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Encoder, Leaves
from rankscope.kernels.error import squared_error as fused_squared_error
from rankscope.lab import Cell, Job
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.batches import Arranged, DrawnThere, Pair, arranged, batch
from rankscope.papers.amsel2024.recipe import APART, EncoderCell, Recipe, Start
from rankscope.tasks.neighbors import mean_cosine
from rankscope.training.adamw import adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.state import ResumeState


def train_group(cells: Sequence[EncoderCell], job: Job) -> tuple[Weights, Float[Tensor, "step member"]]:
    """Train the cells side by side: their weights, and the loss of every step."""

    def batch_at(step: int) -> Pair:
        return batch(cells, Split.TRAIN, step, device=job.device)

    return train_stack(
        cells, start_of(cells, job.device), batch_at, partial(DrawnThere, cells, job.device), job
    )


def train_stack(
    cells: Sequence[Cell[Any, Encoder, Recipe]],
    start: Weights,
    batch_at: Callable[[int], Pair],
    drawn_there: Callable[[], DrawnThere],
    job: Job,
) -> tuple[Weights, Float[Tensor, "step member"]]:
    """Train encoders from `start` by the recipe of the cells: on `batch_at(step)`, on a GPU on what is drawn there."""
    train, stack = cells[0].train, [cell.model for cell in cells]
    settings = train.replace(learning_rate=train.learning_rate * stack[0].layers ** -train.depth_power)
    tokens = cells[0].task.tokens
    program = stacked_encoder.program_for(stack, tokens, job.device, train.precision.dtype)
    error_of = fused_squared_error if kernels.usable(job.device) else squared_error

    def losses(leaves: Leaves, pair: Arranged) -> Tensor:
        return error_of(stacked_encoder.encode(stack, leaves, pair[0], tokens, program), pair[1])

    fit: Callable[..., tuple[Leaves, Float[Tensor, "step member"]]]
    fit = partial(adamw, batch_at=lambda step: arranged(stack, batch_at(step), program))
    if kernels.usable(job.device):
        fit = partial(adamw, batch_at=drawn_there().arranged(program), kind=GraphedStep)
    with train.precision.in_use():
        leaves, history = fit(
            stacked_encoder.leaves_of(start, program),
            losses_of=losses,
            settings=settings,
            steps=job.steps,
            loss_scale=train.precision.loss_scale,
            checkpoint=None if job.state is None else ResumeState(job.state),
            tick=job.tick,
        )
    return stacked_encoder.weights_of(leaves), history


def squared_error(
    output: Float[Tensor, "member dim position"], answer: Float[Tensor, "member dim position"]
) -> Float[Tensor, " member"]:
    """Mean over positions of ‖output − answer‖², summed over dim: 1 for the constant answer 0."""
    return (output - answer).square().sum(1).mean(1)


def start_of(cells: Sequence[EncoderCell], device: str) -> Weights:
    """The initial weights of a group, by its recipe."""
    task, start = cells[0].task, cells[0].train.start
    reaches = start is Start.LAST_LAYER and cells[0].model.layers > 1
    weights = stacked_encoder.init(
        [cell.model for cell in cells],
        [cell.seed for cell in cells],
        tokens=task.tokens,
        last_scale=1.0 if start in (Start.PYTORCH, Start.COPIES) else mean_cosine(task),
        last_reach=1.0 if reaches else None,
        score_spread=APART if start is Start.HEADS_APART else None,
        device=device,
    )
    if start is Start.COPIES:
        for name, tensor in weights.items():
            if name != "positions":
                tensor[:, 1:] = tensor[:, :1]
    return weights
