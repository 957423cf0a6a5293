"""Fine-tuning of one model per cell, measured as the paper measures its own."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankscope.lab import Cell, Job, Outcome, Trainer
from rankscope.linalg.weights import Weights
from rankscope.studies.real.measurement import EVALUATIONS, examine
from rankscope.studies.real.training import Batch, Classifier, FineTune, Trial, fine_tune

Prepare = Callable[[Any, Any, FineTune, int, str], Trial]
"""From task, model, training, seed and device to what a cell needs."""


class Tuned(NamedTuple):
    """A fine-tuned classifier, how its encoder began, and what was held out."""

    classifier: Classifier
    start: Weights
    test: Sequence[Batch]


@dataclass(frozen=True)
class FineTuner(Trainer[Any, Any, FineTune, list[Tuned]]):
    """Every cell runs alone: its model is large enough to fill a core."""

    prepare: Prepare
    probe_steps = 1  # each is long, and every cell is a group
    stacked = False

    def shape_key(self, cell: Cell[Any, Any, FineTune]) -> Hashable:
        """No cell shares another's group."""
        return cell.key()

    def steps(self, cell: Cell[Any, Any, FineTune]) -> int:
        """Steps and evaluations."""
        return cell.train.steps + EVALUATIONS

    def train(self, cells: Sequence[Cell[Any, Any, FineTune]], job: Job) -> list[Tuned]:
        """Fine-tune one cell after the other. Their trainings are short, and keep no state.

        A job that stops early is for the clock: its encoders are not pretrained.
        """
        tuned = []
        for cell in cells:
            train = cell.train if job.steps is None else cell.train.replace(pretraining=0)
            classifier, data, test = self.prepare(cell.task, cell.model, train, cell.seed, job.device)
            start = {name: value.detach().clone() for name, value in classifier.encoder.named_parameters()}
            fine_tune(classifier, data, train, steps=job.steps, tick=job.tick)
            tuned.append(Tuned(classifier, start, test))
        return tuned

    def measure(
        self, cells: Sequence[Cell[Any, Any, FineTune]], trained: list[Tuned], job: Job
    ) -> list[Outcome]:
        """Everything measured on each fine-tuned classifier."""
        return [examine(one.classifier, one.start, one.test, tick=job.tick) for one in trained]
