"""The constructions that need no training, measured: each as a model that answers, beside its exact error."""

import time
from collections.abc import Callable, Hashable, Sequence
from enum import Enum

import torch
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.lab import Cell, Computation, Outcome
from rankscope.papers.amsel2024.constructions.full_rank import full_rank_head
from rankscope.papers.amsel2024.constructions.majority_vote import MajorityVote
from rankscope.papers.amsel2024.constructions.random_heads import random_heads
from rankscope.tasks.neighbors import Neighbors, NeighborsBatch, sample
from rankscope.theory.heads.majority import failure_rate
from rankscope.theory.heads.softmax_head import error_two_orthonormal

PIECE = 500
"""Samples that are answered at a time: the heads' values for all of them would be gigabytes at the paper's sizes."""


class Kind(Enum):
    """Which construction."""

    HARDMAX = "hardmax"
    SOFTMAX = "softmax"
    MAJORITY = "majority"
    RANDOM = "random"


class Construction(Config):
    """A construction and its one number: nothing, the temperature β, or the number of heads."""

    kind: Kind
    size: int = Field(ge=1)


class Simulation(Config):
    """How often heads are drawn anew, and how many samples each draw answers."""

    draws: int = Field(ge=1)
    samples: int = Field(ge=1)


class Constructions(Computation[Neighbors, Construction, Simulation]):
    """Each construction answers as a model does, and is measured."""

    def shape_key(self, cell: Cell[Neighbors, Construction, Simulation]) -> Hashable:
        """Seeds of one construction take turns: they cost the same."""
        return cell.task, cell.model, cell.train

    def compute(self, cell: Cell[Neighbors, Construction, Simulation]) -> Outcome:
        """The mean over draws of what is measured, and of what the formula says."""
        found = [
            _draw(cell.model, cell.task, cell.train.samples, cell.seed, draw)
            for draw in range(cell.train.draws)
        ]
        measured, predicted = (sum(values) / len(found) for values in zip(*found, strict=True))
        return Outcome([{"measured": measured, "predicted": predicted}])

    def seconds_per_step(
        self, cells: Sequence[Cell[Neighbors, Construction, Simulation]], device: str
    ) -> float:
        """Time of one draw, times the draws of all cells."""
        first = cells[0]
        start = time.perf_counter()
        _draw(first.model, first.task, first.train.samples, first.seed, 0)
        return (time.perf_counter() - start) * first.train.draws * len(cells)


@torch.no_grad()
def _draw(model: Construction, task: Neighbors, samples: int, seed: int, draw: int) -> tuple[float, float]:
    """One draw of heads: the error or failure rate measured, and the exact one."""
    batch = sample(task, samples, stream(seed, "simulation", draw), dtype=torch.float64)
    heads = stream(seed, "simulated heads", draw)
    if model.kind is Kind.MAJORITY:
        vote = MajorityVote(task.dim, model.size, heads, dtype=torch.float64)
        wrong = (_answers(vote, batch) - batch.answer).norm(dim=-1) > 0.5
        return float(wrong.double().mean()), failure_rate(task.dim, model.size)
    if model.kind is Kind.RANDOM:
        drawn = random_heads(task.dim, model.size, heads)
        return _error(drawn.layer(), batch), drawn.error
    beta = None if model.kind is Kind.HARDMAX else float(model.size)
    head = full_rank_head(task.dim, task.target, temperature=beta, dtype=torch.float64)
    return _error(head, batch), 0.0 if beta is None else error_two_orthonormal(task.dim, beta)


def _error(layer: torch.nn.Module, batch: NeighborsBatch) -> float:
    output = _answers(lambda points, queries: layer(queries, points, points, need_weights=False)[0], batch)
    return float((output - batch.answer).square().sum(-1).mean())


def _answers(model: Callable[[Tensor, Tensor], Tensor], batch: NeighborsBatch) -> Tensor:
    """What the model says to all points and queries."""
    pieces = zip(torch.split(batch.points, PIECE), torch.split(batch.queries, PIECE), strict=True)
    return torch.cat([model(points, queries) for points, queries in pieces])
