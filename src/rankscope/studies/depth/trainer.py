"""Encoders of equal shape trained as one ensemble, at a rate that their depth decides."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, stack

from rankscope.ensembles import layered
from rankscope.ensembles.layered import Layered
from rankscope.lab import Cell, Job, Outcome
from rankscope.lab.experiment import Scalar
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.trainer import PatternTrainer
from rankscope.tasks.patterns import PatternBatch, Patterns
from rankscope.training.sgd import Sgd, Trajectory

LayeredCell = Cell[Patterns, Layered, Sgd]


class Measures(Protocol):
    """Who measures a trained group: the records of each member."""

    def __call__(
        self, cells: Sequence[LayeredCell], start: Weights, end: Weights, device: str
    ) -> list[list[dict[str, Scalar]]]:
        """The records of each member."""


@dataclass(frozen=True)
class LayeredTrainer(PatternTrainer[Layered]):
    """Trains the encoders and hands their start and end to `measures`."""

    measures: Measures
    probe_steps = 2

    def rate(self, cell: LayeredCell) -> float:
        """The learning rate, less in a deep encoder.

        Without residuals the gradient of an early layer is a product of as many factors as there are layers, and the
        steps that are still stable shrink threefold with each; with them it is a sum.
        """
        model = cell.model
        return cell.train.learning_rate * (1 / model.layers if model.residual else 3.0 ** (1 - model.layers))

    def start(self, cells: Sequence[LayeredCell], device: str) -> Weights:
        """The weights at step 0."""
        return layered.init([cell.model for cell in cells], [cell.seed for cell in cells], device=device)

    def gradients(
        self, cells: Sequence[LayeredCell], weights: Weights, batch: PatternBatch
    ) -> tuple[Tensor, Weights]:
        """Of the hinge loss."""
        return layered.hinge_gradients(cells[0].model, weights, batch.x, batch.labels)

    def model_key(self, model: Layered) -> tuple[Hashable, ...]:
        """Every shape and the wiring."""
        return model.layers, model.heads, model.hidden, model.residual, model.norm

    def measure(self, cells: Sequence[LayeredCell], trained: Trajectory, job: Job) -> list[Outcome]:
        """The records alone."""
        return [
            Outcome(records)
            for records in self.measures(cells, trained.at[0], final_weights(trained), job.device)
        ]


def final_weights(trajectory: Trajectory) -> Weights:
    """The weights at the end. A member that diverged goes back to its start, whose loss marks it as not trained."""
    start, end = trajectory.at[0], trajectory.at[max(trajectory.at)]
    sound = stack([tensor.flatten(1).isfinite().all(1) for tensor in end.values()]).all(0)
    return {
        name: tensor.where(sound.view(-1, *[1] * (tensor.ndim - 1)), start[name])
        for name, tensor in end.items()
    }
