"""The lower bound's own setting, trained: nearest of two orthonormal points, a bare sum of heads.

The floor holds for one layer of heads with arbitrary value matrices on two points. It does not cover a skip
connection, biases, an MLP or more points, so figure 1's encoders are not compared with it, and these are.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from rankscope import kernels
from rankscope.core.streams import Split, stream, stream_seed
from rankscope.ensembles import head_sum
from rankscope.ensembles.head_sum import HeadSum
from rankscope.kernels.normals import normals
from rankscope.lab import Cell, Job, Outcome, Trainer
from rankscope.linalg.sphere import orthonormalized
from rankscope.linalg.weights import Weights
from rankscope.tasks.neighbors import Neighbors, NeighborsBatch, answered, sample
from rankscope.theory.heads.lower_bound import error_floor
from rankscope.training.adamw import AdamW, adamw
from rankscope.training.graphed import GraphedStep
from rankscope.training.state import ResumeState

TEST_SAMPLES = 8192


PointsCell = Cell[Neighbors, HeadSum, AdamW]


class TwoPointsTrainer(Trainer[Neighbors, HeadSum, AdamW, Weights]):
    """Heads that are trained side by side, and compared with the floor."""

    def shape_key(self, cell: PointsCell) -> Hashable:
        """Members of a stack differ in the seed only."""
        return cell.task, cell.model, cell.train

    def steps(self, cell: PointsCell) -> int:
        """Steps of the training."""
        return cell.train.steps

    def train(self, cells: Sequence[PointsCell], job: Job) -> Weights:
        """On a GPU the step is a graph, and draws its batch there."""
        device, train = job.device, cells[0].train
        start = head_sum.init(cells[0].model, [cell.seed for cell in cells], device=device)
        fit: Callable[..., tuple[Weights, Tensor]]
        if kernels.usable(device):
            fit = partial(adamw, batch_at=_drawn_there(cells, train.batch, device), kind=GraphedStep)
        else:
            fit = partial(adamw, batch_at=lambda step: _batch(cells, train.batch, device, Split.TRAIN, step))
        checkpoint = None if job.state is None else ResumeState(job.state)
        return fit(
            start, losses_of=_losses, settings=train, steps=job.steps, checkpoint=checkpoint, tick=job.tick
        )[0]

    def measure(self, cells: Sequence[PointsCell], trained: Weights, job: Job) -> list[Outcome]:
        """The error on new samples, and the floor."""
        model = cells[0].model
        test = _batch(cells, TEST_SAMPLES, job.device, Split.TEST)
        with torch.no_grad():
            errors = _losses(trained, test).tolist()
        floor = error_floor(model.dim, model.rank, model.heads, "any")
        return [Outcome([{"error": error, "floor": floor, "heads": model.heads}]) for error in errors]


def _drawn_there(
    cells: Sequence[PointsCell], size: int, device: str
) -> Callable[[Int[Tensor, "1"]], NeighborsBatch]:
    """Batches by (seed, step) alone, drawn on the device."""
    task = cells[0].task
    keys = torch.tensor(
        [stream_seed(cell.seed, "two points", Split.TRAIN) % 2**31 for cell in cells], device=device
    )

    def batch_at(step: Int[Tensor, "1"]) -> NeighborsBatch:
        shape = (len(cells), size, task.tokens + 1, task.dim)
        gaussian = normals(keys, step, math.prod(shape[1:])).view(shape)
        points = orthonormalized(gaussian[:, :, 1:])
        return answered(points, functional.normalize(gaussian[:, :, :1], dim=-1), task.target)

    return batch_at


def _batch(cells: Sequence[PointsCell], size: int, device: str, split: Split, *place: int) -> NeighborsBatch:
    task = cells[0].task
    drawn = [
        sample(task, size, stream(cell.seed, "two points", split, *place, device=device)) for cell in cells
    ]
    return NeighborsBatch(
        *(
            torch.stack([getattr(one, part) for one in drawn])
            for part in ("points", "queries", "answer", "index")
        )
    )


def _losses(weights: Weights, batch: NeighborsBatch) -> Tensor:
    output = head_sum.forward(weights, batch.points, batch.queries)
    return (output - batch.answer).square().sum(-1).mean((1, 2))
