"""The one-layer transformer with k classes: the class of a sample is that of the pattern that wins."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from torch import Tensor

from rankscope.ensembles import patterns as many_class
from rankscope.ensembles.patterns import ManyClass
from rankscope.lab import Cell, Job, Outcome
from rankscope.lab.trainer import TrainedT
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.trainer import PatternTrainer, one_layer_key
from rankscope.studies.relevant.measurement import Examiner
from rankscope.tasks.patterns import PatternBatch, Patterns
from rankscope.training.sgd import Sgd, Trajectory

ClassesT = TypeVar("ClassesT", bound=ManyClass)


class ClassTrainer(PatternTrainer[ClassesT, TrainedT]):
    """Members of as many classes, trained on the class of every sample."""

    def shape_key(self, cell: Cell[Patterns, ClassesT, Sgd]) -> Hashable:
        """Every shape. How many patterns vote may differ."""
        return self.task_key(cell), one_layer_key(cell.model), cell.model.classes

    def start(self, cells: Sequence[Cell[Patterns, ClassesT, Sgd]], device: str) -> Weights:
        """The weights at step 0."""
        return many_class.init(
            [cell.model for cell in cells],
            [cell.seed for cell in cells],
            tokens=cells[0].task.tokens,
            device=device,
        )

    def fit(
        self,
        cells: Sequence[Cell[Patterns, ClassesT, Sgd]],
        weights: Weights,
        job: Job,
        gradients: Callable[[Weights, Tensor, Tensor], tuple[Tensor, Weights]] = many_class.hinge_gradients,
    ) -> Trajectory:
        """Train from the given weights."""
        classes = cells[0].model.classes

        def on_batch(now: Weights, batch: PatternBatch) -> tuple[Tensor, Weights]:
            return gradients(now, batch.x, batch.winner % classes)

        return self.descend(cells, weights, on_batch, job)


class VoteTrainer(ClassTrainer[ManyClass, Trajectory]):
    """Trained in full, and measured at the end."""

    def train(self, cells: Sequence[Cell[Patterns, ManyClass, Sgd]], job: Job) -> Trajectory:
        """The losses, the start and the end."""
        return self.fit(cells, self.start(cells, job.device), job)

    def measure(
        self, cells: Sequence[Cell[Patterns, ManyClass, Sgd]], trained: Trajectory, job: Job
    ) -> list[Outcome]:
        """The rows of every member, and the spectra of its first and its whole update."""
        last = max(trained.at)
        examiner = Examiner(cells, trained.at[0], job.device)
        spectra = {
            **{f"sigma/end/{name}": values for name, values in examiner.updates(trained.at[last]).items()},
            **{f"sigma/first/{name}": values for name, values in examiner.first_updates().items()},
        }
        return [
            Outcome(records, {name: values[member].cpu().clone() for name, values in spectra.items()})
            for member, records in enumerate(examiner.records(trained))
        ]
