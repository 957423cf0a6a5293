"""Who trains the study's encoders, in stacks."""

from collections.abc import Hashable, Sequence

from rankscope.ensembles.encoder import Encoder
from rankscope.lab import Job, Outcome, Trainer
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.recipe import Recipe
from rankscope.studies.text.batches import LawCell
from rankscope.studies.text.measurement import trained_records
from rankscope.studies.text.training import train_group
from rankscope.tasks.laws import LawNeighbors


class LawTrainer(Trainer[LawNeighbors, Encoder, Recipe, Weights]):
    """Members of a stack differ in law, rank and seed."""

    def shape_key(self, cell: LawCell) -> Hashable:
        """Sizes of the task, the model but its rank, and the training."""
        return cell.task.dim, cell.task.tokens, cell.model.replace(rank=1), cell.train

    def steps(self, cell: LawCell) -> int:
        """Steps of the training."""
        return cell.train.steps

    def train(self, cells: Sequence[LawCell], job: Job) -> Weights:
        """Train the cells side by side."""
        return train_group(cells, job)

    def measure(self, cells: Sequence[LawCell], trained: Weights, job: Job) -> list[Outcome]:
        """One record per member."""
        return [Outcome([record]) for record in trained_records(cells, trained, job.device)]

    def dtype(self, cell: LawCell) -> str:
        """The recipe's precision."""
        return cell.train.precision.value
