"""Scores on the leading principal directions of a law's points, without any training: measured and predicted."""

import time
from collections.abc import Hashable, Sequence
from functools import cache

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import Split, stream
from rankscope.lab import Cell, Computation, Outcome
from rankscope.lab.experiment import ModelT, RecipeT, Scalar, TaskT
from rankscope.studies.text.batches import given_to
from rankscope.studies.text.measurement import spectrum_for
from rankscope.tasks.laws import LawNeighbors, draw
from rankscope.theory.points.spectra import (
    dimensions,
    expected_agreement,
    expected_error,
    halving_rank,
    least_rank,
    needed_rank,
)

KEPT = 0.9
"""Share of answers that a score of the needed rank keeps."""


class Timed(Computation[TaskT, ModelT, RecipeT]):
    """Its first cell is computed for the clock."""

    def seconds_per_step(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], device: str) -> float:
        """Time of one cell, times the cells."""
        start = time.perf_counter()
        self.compute(cells[0])
        return (time.perf_counter() - start) * len(cells)


class Projection(Config):
    """The ranks of the score on principal directions."""

    ranks: tuple[int, ...]


class Samples(Config):
    """How many samples are drawn."""

    samples: int = Field(ge=1)


class Projections(Timed[LawNeighbors, Projection, Samples]):
    """Scores on the leading principal directions, without any training."""

    def shape_key(self, cell: Cell[LawNeighbors, Projection, Samples]) -> Hashable:
        """Seeds of one law take turns."""
        return cell.task, cell.model, cell.train

    def compute(self, cell: Cell[LawNeighbors, Projection, Samples]) -> Outcome:
        """A record per rank."""
        ranks = [rank for rank in cell.model.ranks if rank <= cell.task.dim]
        return Outcome(projected_records(cell.task, cell.train.samples, ranks, cell.seed))


def projected_records(
    task: LawNeighbors, samples: int, ranks: Sequence[int], seed: int
) -> list[dict[str, Scalar]]:
    """Agreement and squared error of scores on the leading principal directions, measured and predicted, a row per rank.

    In every row are the law's dimensions, the least rank that keeps `KEPT` of the answers, and the least whose error is half
    that of rank 1.
    """
    spectrum = spectrum_for(task, seed)
    points = draw(task, samples, stream(seed, "projected"), given_to(task, Split.TEST, seed)).points
    others, sizes = task.tokens - 1, dimensions(spectrum)._asdict()
    exact, products = farthest(points, task.dim), points @ points.mT
    at = cache(lambda rank: compared(points, exact, rank, products))
    known: dict[str, Scalar] = {
        **sizes,
        "dim": task.dim,
        "needed": least_rank(task.dim, lambda rank: at(rank)[0] >= KEPT),
        "halved": least_rank(task.dim, lambda rank: at(rank)[1] <= at(1)[1] / 2),
        "predicted_needed": needed_rank(spectrum, others, KEPT),
        "predicted_halved": halving_rank(spectrum, others),
    }
    return [
        {
            **known,
            "rank": rank,
            "agreement": at(rank)[0],
            "error": at(rank)[1],
            "predicted": expected_agreement(spectrum, rank, others),
            "predicted_error": expected_error(spectrum, rank, others),
        }
        for rank in ranks
    ]


def farthest(points: Float[Tensor, "sample token dim"], rank: int) -> Tensor:
    """The index of every point's farthest other by the score on the first `rank` coordinates."""
    low = points[..., :rank]
    scores = low @ low.mT
    scores.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    return scores.argmin(-1)


def compared(points: Tensor, exact: Tensor, rank: int, products: Tensor) -> tuple[float, float]:
    """Share of points whose farthest is the same at a rank, and the mean squared distance between the two choices."""
    chosen = farthest(points, rank)
    sample = torch.arange(len(points)).unsqueeze(1)
    one, other, both = (
        products[sample, i, j] for i, j in ((exact, exact), (chosen, chosen), (exact, chosen))
    )
    return float((exact == chosen).double().mean()), float((one + other - 2 * both).double().mean())
