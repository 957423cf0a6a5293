"""Two fine-tunings per cell, on two halves of the data, measured together."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.lab import Cell, Job, Outcome, Trainer
from rankscope.studies.real.measurement import Tuned, evaluations, examine
from rankscope.studies.real.training import HALVES, FineTune, Trial, fine_tune

Prepare = Callable[[Any, Any, FineTune, int, int, str], Trial]
"""From task, model, training, seed, half and device to what a fine-tuning needs."""

COUNTS = ("kinds", "classes")


@dataclass(frozen=True)
class FineTuner(Trainer[Any, Any, FineTune, list[list[Tuned]]]):
    """Every cell runs alone: its model is large enough to fill a core."""

    prepare: Prepare
    probe_steps = 1  # each is long, and every cell is a group
    stacked = False

    def shape_key(self, cell: Cell[Any, Any, FineTune]) -> Hashable:
        """No cell shares another's group."""
        return cell.key()

    def steps(self, cell: Cell[Any, Any, FineTune]) -> int:
        """Steps and evaluations of both halves."""
        return HALVES * (cell.train.steps + evaluations(cell.task.permuted))

    def train(self, cells: Sequence[Cell[Any, Any, FineTune]], job: Job) -> list[list[Tuned]]:
        """Fine-tune one half after the other. Their trainings are short, and keep no state."""
        return [[self._tuned(cell, half, job) for half in range(HALVES)] for cell in cells]

    def _tuned(self, cell: Cell[Any, Any, FineTune], half: int, job: Job) -> Tuned:
        """A job that stops early is for the clock: its encoders are not pretrained."""
        train = cell.train if job.steps is None else cell.train.replace(pretraining=0)
        trial = self.prepare(cell.task, cell.model, train, cell.seed, half, job.device)
        encoder = trial.classifier.encoder
        start = {name: value.detach().clone() for name, value in encoder.named_parameters()}
        fine_tune(trial.classifier, trial.batches, train, steps=job.steps, tick=job.tick)
        return Tuned(trial.classifier, start, trial.seen, trial.test)

    def measure(
        self, cells: Sequence[Cell[Any, Any, FineTune]], trained: list[list[Tuned]], job: Job
    ) -> list[Outcome]:
        """Everything measured on each pair of halves, and the counts that the task is about."""
        outcomes = []
        for cell, halves in zip(cells, trained, strict=True):
            counts = {name: value for name, value in cell.task if name in COUNTS}
            records = examine(halves, permuted=cell.task.permuted, tick=job.tick)
            outcomes.append(Outcome([{**counts, **record} for record in records]))
        return outcomes
