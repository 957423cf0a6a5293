"""Encoders of any ranks, trained as one stack and measured on fresh samples."""

from collections.abc import Hashable, Sequence

from jaxtyping import Float
from torch import Tensor

from rankscope.ensembles.encoder import Encoder
from rankscope.lab import Job, Outcome, Trainer
from rankscope.lab.tidy import MEASUREMENT
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.measurement import END, EPOCH, course, records
from rankscope.papers.amsel2024.recipe import EncoderCell, Recipe
from rankscope.papers.amsel2024.training import train_group
from rankscope.tasks.neighbors import Neighbors

Trained = tuple[Weights, Float[Tensor, "step member"]]
"""The weights, and the loss of every step."""


class EncoderTrainer(Trainer[Neighbors, Encoder, Recipe, Trained]):
    """Stopped or killed, a training goes on from its last state."""

    def shape_key(self, cell: EncoderCell) -> Hashable:
        """Everything but rank, seed and the number of distinct batches."""
        return cell.task, cell.model.replace(rank=1), cell.train.replace(distinct_batches=None)

    def steps(self, cell: EncoderCell) -> int:
        """Steps of the training."""
        return cell.train.steps

    def train(self, cells: Sequence[EncoderCell], job: Job) -> Trained:
        """Train the cells side by side."""
        return train_group(cells, job)

    def measure(self, cells: Sequence[EncoderCell], trained: Trained, job: Job) -> list[Outcome]:
        """One record per member."""
        return [Outcome([record]) for record in records(cells, *trained, job.device)]

    def dtype(self, cell: EncoderCell) -> str:
        """The recipe's precision."""
        return cell.train.precision.value


class RepeatedTrainer(EncoderTrainer):
    """Keeps the course of the training loss as well: the authors' longest trainings may have met their jobs' time limit."""

    def measure(self, cells: Sequence[EncoderCell], trained: Trained, job: Job) -> list[Outcome]:
        """Per member a record of its end, and one per twentieth of its epochs."""
        losses = trained[1]
        ended = super().measure(cells, trained, job)
        return [
            Outcome(
                [
                    *({MEASUREMENT: END, **record} for record in outcome.records),
                    *course(losses[:, member], cell.train.distinct_batches or EPOCH),
                ]
            )
            for member, (cell, outcome) in enumerate(zip(cells, ended, strict=True))
        ]
