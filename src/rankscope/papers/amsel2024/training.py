"""From cells to trained encoders: a group of amsel2024's cells, of any ranks, trained as one stack."""

import math
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from rankscope import kernels
from rankscope.core.streams import Split, stream, stream_seed
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Encoder, Leaves, Program
from rankscope.kernels.error import squared_error as fused_squared_error
from rankscope.kernels.normals import normals
from rankscope.kernels.small_attention import token_first
from rankscope.lab import Cell, Job
from rankscope.linalg.weights import Weights
from rankscope.tasks.neighbors import Neighbors, exact_answer, mean_cosine, sample
from rankscope.training.adamw import AdamW, adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.precision import Precision
from rankscope.training.state import ResumeState

Arranged = tuple[Float[Tensor, "member dim position"], Float[Tensor, "member dim position"]]
"""Points and answers as the program wants them."""

Pair = tuple[Float[Tensor, "member sample token dim"], Float[Tensor, "member sample token dim"]]
"""Points and answers."""


StepT = TypeVar("StepT", int, Tensor)


class Start(Enum):
    """Where the last norm's scalar, the size and sign of every output, starts, and what else is not PyTorch's.

    PYTORCH            at 1, as every other norm; the heads attend to all points alike
    COPIES             the same, and every layer starts as a copy of the first, as in torch's TransformerEncoder
    TOWARDS_ANSWER     at E⟨point, answer⟩ < 0, the best multiple of the point itself
    LAST_LAYER         there, too; in the last of several layers attention adds to a token one of its own length
    HEADS_APART        there, too; each head prefers points of its own, with scores of standard deviation `APART`
    """

    PYTORCH = "pytorch"
    COPIES = "copies"
    TOWARDS_ANSWER = "towards answer"
    LAST_LAYER = "last layer"
    HEADS_APART = "heads apart"


APART = 2.0
"""The standard deviation of a score at the start, where heads start apart."""


class Recipe(AdamW):
    """AdamW at learning_rate · layers^(−depth_power), from one of the starts.

    distinct_batches   so many batches are drawn, and trained on in the same order again and again; None draws a fresh
                       one at every step
    """

    depth_power: float = Field(default=0.0, ge=0)
    start: Start
    precision: Precision = Precision.FLOAT32
    distinct_batches: int | None = Field(default=None, ge=1)


PAPER_RECIPE = Recipe(steps=100_000, batch=256, learning_rate=0.01, warmup=0.05, start=Start.PYTORCH)
"""What the talk says: one learning rate for every depth, PyTorch's initial weights."""

AUTHORS_RECIPE = PAPER_RECIPE.replace(start=Start.COPIES, distinct_batches=100, epoch=100)
"""What the authors' program does: the same 100 batches in every epoch, with one learning rate per epoch."""

OUR_RECIPE = PAPER_RECIPE.replace(warmup=0.1, depth_power=0.5, start=Start.LAST_LAYER)
"""Trains every cell: see `experiments` for what was tried and measured."""


EncoderCell = Cell[Neighbors, Encoder, Recipe]


def train_group(cells: Sequence[EncoderCell], job: Job) -> tuple[Weights, Float[Tensor, "step member"]]:
    """Train the cells side by side: their weights, and the loss of every step."""
    device, train, stack = job.device, cells[0].train, [cell.model for cell in cells]
    settings = train.replace(learning_rate=train.learning_rate * stack[0].layers ** -train.depth_power)
    tokens = cells[0].task.tokens
    program = stacked_encoder.program_for(stack, tokens, device, train.precision.dtype)
    error_of = fused_squared_error if kernels.usable(device) else squared_error

    def losses(leaves: Leaves, pair: Arranged) -> Tensor:
        return error_of(stacked_encoder.encode(stack, leaves, pair[0], tokens, program), pair[1])

    def batch_at(step: int) -> Arranged:
        place = _repeated(step, train.distinct_batches)
        return arranged(cells, batch(cells, train.batch, Split.TRAIN, place, device=device), program)

    fit: Callable[..., tuple[Leaves, Float[Tensor, "step member"]]] = partial(adamw, batch_at=batch_at)
    if kernels.usable(device):
        there = _drawn_there(cells, train.batch, program, device)
        fit = partial(adamw, batch_at=there, kind=GraphedStep)
    with train.precision.in_use():
        leaves, history = fit(
            stacked_encoder.leaves_of(start_of(cells, device), program),
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


def arranged(cells: Sequence[EncoderCell], pair: Pair, program: Program) -> Arranged:
    """Both arrays of a batch as the program wants them."""
    points, answers = pair
    stack = [cell.model for cell in cells]
    return stacked_encoder.arrange(stack, points, program), stacked_encoder.arrange(stack, answers, program)


def _drawn_there(
    cells: Sequence[EncoderCell], size: int, program: Program, device: str
) -> Callable[[Int[Tensor, "1"]], Arranged]:
    """Batches drawn on the device by (seed, step) alone; members of one seed share them, whatever their rank."""
    task = cells[0].task
    seeds = sorted({cell.seed for cell in cells})
    keys = torch.tensor(
        [stream_seed(seed, "neighbors", Split.TRAIN) % 2**31 for seed in seeds], device=device
    )
    wanted = [token_first(program.way, cell.model.rank) for cell in cells]
    orders = sorted(set(wanted))
    rows = [
        seeds.index(cell.seed) + len(seeds) * orders.index(order)
        for cell, order in zip(cells, wanted, strict=True)
    ]
    member = torch.tensor(rows, device=device)

    def for_members(array: Float[Tensor, "seed sample token dim"]) -> Float[Tensor, "member dim position"]:
        laid = [array.permute(0, 3, 2, 1) if first else array.permute(0, 3, 1, 2) for first in orders]
        return torch.cat([one.flatten(2) for one in laid])[member]

    def batch_at(step: Int[Tensor, "1"]) -> Arranged:
        place = _repeated(step, cells[0].train.distinct_batches)
        shape = (len(seeds), size, task.tokens, task.dim)
        points = functional.normalize(normals(keys, place, math.prod(shape[1:])).view(shape), dim=-1)
        with Precision.FLOAT32.in_use():
            answers = exact_answer(points, points, task.target)
        return for_members(points.to(program.dtype)), for_members(answers)

    return batch_at


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


def _repeated(step: StepT, distinct: int | None) -> StepT:
    """The place of the step's batch among the distinct ones."""
    return step if distinct is None else step % distinct


def batch(cells: Sequence[EncoderCell], size: int, split: Split, place: int, *, device: str) -> Pair:
    """A batch per member, from its seed's stream of the split; members of one seed share it, whatever their rank."""
    of_seed = {cell.seed: cell for cell in cells}
    drawn = {
        seed: sample(cell.task, size, stream(seed, "neighbors", split, place, device=device))
        for seed, cell in of_seed.items()
    }
    each = [drawn[cell.seed] for cell in cells]
    return torch.stack([one.points for one in each]), torch.stack([one.answer for one in each])
