"""Decoders of any heads at one product rank · heads, trained as one stack and measured on fresh prompts."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache

from jaxtyping import Float
from torch import Tensor

from rankscope.ensembles.decoder import Decoder
from rankscope.lab import Job, Outcome, Trainer
from rankscope.linalg.weights import Weights
from rankscope.papers.garg2022.measurement import records
from rankscope.papers.garg2022.recipe import DecoderCell, Recipe
from rankscope.papers.garg2022.training import train_group
from rankscope.tasks.in_context import InContext

PROBED = 100
"""Steps of a training that is timed: more than are taken."""

Trained = tuple[Weights, Float[Tensor, "step member"]]
"""The weights, and the loss of every step."""


class DecoderTrainer(Trainer[InContext, Decoder, Recipe, Trained]):
    """Stopped or killed, a training goes on from its last state, and a piece from the end of the one before."""

    def shape_key(self, cell: DecoderCell) -> Hashable:
        """Everything but how rank · heads is divided, and the seed."""
        return cell.task, cell.model.replace(rank=cell.model.inner, heads=1), cell.train

    def steps(self, cell: DecoderCell) -> int:
        """Steps of the training, without those of earlier pieces."""
        return cell.train.steps - cell.train.after

    def train(self, cells: Sequence[DecoderCell], job: Job) -> Trained:
        """Train the cells side by side."""
        return train_group(cells, job)

    def measure(self, cells: Sequence[DecoderCell], trained: Trained, job: Job) -> list[Outcome]:
        """Errors, the way they fell, and what the heads use of their rank."""
        return [Outcome(rows) for rows in records(cells, *trained, job.device)]

    def dtype(self, cell: DecoderCell) -> str:
        """The recipe's precision."""
        return cell.train.precision.value

    def seconds_per_step(self, cells: Sequence[DecoderCell], device: str) -> float:
        """Time of a step of the whole task: the curriculum's first steps are shorter.

        It is measured once for all pieces of a training. So a queue, which has what is quickest first, has them in order.
        """
        return _seconds_per_step(
            tuple(
                replace(cell, train=cell.train.replace(steps=PROBED, pieces=(), curriculum=None), point=())
                for cell in cells
            ),
            device,
        )


@cache
def _seconds_per_step(cells: tuple[DecoderCell, ...], device: str) -> float:
    return Trainer.seconds_per_step(DecoderTrainer(), cells, device)
