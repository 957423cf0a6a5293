"""The one-layer transformer with k classes: the class of a sample is that of the pattern that wins."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from torch import Tensor

from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import ManyClass
from rankscope.lab import Cell, Job, Outcome
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.trainer import PatternTrainer
from rankscope.studies.relevant.measurement import VoteExaminer
from rankscope.tasks.patterns import PatternBatch, Patterns
from rankscope.training.sgd import Sgd, Trajectory

ClassesT = TypeVar("ClassesT", bound=ManyClass)


class VoteTrainer(PatternTrainer[ClassesT]):
    """Members of as many classes, trained on the class of every sample and measured at the end."""

    def start(self, cells: Sequence[Cell[Patterns, ClassesT, Sgd]], device: str) -> Weights:
        """The weights at step 0."""
        models, seeds = [cell.model for cell in cells], [cell.seed for cell in cells]
        return patterns.init(models, seeds, tokens=cells[0].task.tokens, device=device)

    def gradients(
        self, cells: Sequence[Cell[Patterns, ClassesT, Sgd]], weights: Weights, batch: PatternBatch
    ) -> tuple[Tensor, Weights]:
        """Of the hinge of Weston and Watkins."""
        return patterns.hinge_gradients(weights, batch.x, batch.winner % cells[0].model.classes)

    def model_key(self, model: ClassesT) -> tuple[Hashable, ...]:
        """Every shape. How many patterns vote may differ."""
        return model.rank, model.value_rank, model.hidden, model.output.value, model.classes

    def measure(
        self, cells: Sequence[Cell[Patterns, ClassesT, Sgd]], trained: Trajectory, job: Job
    ) -> list[Outcome]:
        """The rows of every member, and the spectra of its first and its whole update."""
        last = max(trained.at)
        examiner = VoteExaminer(cells, trained.at[0], job.device)
        spectra = {
            **{f"sigma/end/{name}": values for name, values in examiner.updates(trained.at[last]).items()},
            **{f"sigma/first/{name}": values for name, values in examiner.first_updates().items()},
        }
        return [
            Outcome(records, {name: values[member].cpu().clone() for name, values in spectra.items()})
            for member, records in enumerate(examiner.records(trained))
        ]
