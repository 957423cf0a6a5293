"""Encoders on points of any law, trained by amsel2024's recipe."""

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split, stream
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Encoder, Leaves
from rankscope.lab import Cell, Job
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.recipe import Recipe
from rankscope.papers.amsel2024.training import squared_error
from rankscope.studies.text.sources import rows_of
from rankscope.tasks.laws import (
    Empirical,
    LawNeighbors,
    Measured,
    Pool,
    Spectrum,
    draw,
    reduced,
    spectrum_of,
    split_rows,
)
from rankscope.training.adamw import adamw
from rankscope.training.state import ResumeState

LawCell = Cell[LawNeighbors, Encoder, Recipe]
Pair = tuple[Float[Tensor, "member sample token dim"], Float[Tensor, "member sample token dim"]]

START_SAMPLES = 4096


@cache
def given_to(task: LawNeighbors, split: Split, seed: int) -> Pool | Spectrum | None:
    """What a law is drawn from: rows of an empirical one, the training rows' spectrum of a measured one."""
    if isinstance(task.law, Measured):
        rows = rows_for(task, Split.TRAIN, seed)
        assert rows is not None
        return spectrum_of(rows)
    return rows_for(task, split, seed)


@cache
def rows_for(task: LawNeighbors, split: Split, seed: int) -> Pool | None:
    """The rows that a law draws from: of a source, in the task's dimensions, for training or held out."""
    if not isinstance(task.law, Measured | Empirical):
        return None
    rows = rows_of(task.law.source)
    train = split_rows(rows, Split.TRAIN, seed)
    return reduced(train, train if split is Split.TRAIN else split_rows(rows, split, seed), task.dim)


def batch(cells: Sequence[LawCell], split: Split, step: int, device: str) -> Pair:
    """A fresh batch per member; members of one law and seed share it, whatever their rank."""
    drawn: dict[tuple[LawNeighbors, int], tuple[Tensor, Tensor]] = {}
    for cell in cells:
        if (cell.task, cell.seed) not in drawn:
            source = stream(cell.seed, "law neighbors", split, step, device=device)
            one = draw(cell.task, cell.train.batch, source, given_to(cell.task, split, cell.seed))
            drawn[cell.task, cell.seed] = one.points, one.answer
    each = [drawn[cell.task, cell.seed] for cell in cells]
    return torch.stack([points for points, _ in each]), torch.stack([answer for _, answer in each])


@cache
def mean_cosine(task: LawNeighbors, seed: int) -> float:
    """E⟨point, answer⟩ by simulation on what is trained on: the best multiple of the point itself."""
    one = draw(task, START_SAMPLES, stream(seed, "mean cosine"), given_to(task, Split.TRAIN, seed))
    return float((one.points * one.answer).sum(-1).mean())


def train_group(cells: Sequence[LawCell], job: Job) -> Weights:
    """Train the cells side by side, on fresh draws."""
    device, train, stack = job.device, cells[0].train, [cell.model for cell in cells]
    settings = train.replace(learning_rate=train.learning_rate * stack[0].layers ** -train.depth_power)
    tokens = cells[0].task.tokens
    program = stacked_encoder.program_for(stack, tokens, device, train.precision.dtype)

    def losses(leaves: Leaves, pair: tuple[Tensor, Tensor]) -> Tensor:
        return squared_error(stacked_encoder.encode(stack, leaves, pair[0], tokens, program), pair[1])

    def batch_at(step: int) -> tuple[Tensor, Tensor]:
        points, answers = batch(cells, Split.TRAIN, step, device)
        return stacked_encoder.arrange(stack, points, program), stacked_encoder.arrange(
            stack, answers, program
        )

    with train.precision.in_use():
        leaves, _ = adamw(
            stacked_encoder.leaves_of(_start(cells, device), program),
            batch_at=batch_at,
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
