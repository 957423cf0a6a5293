"""Who computes the study's cells: encoders trained in stacks, projected scores, and the heads of MiniLM."""

import time
from collections.abc import Hashable, Sequence

from pydantic import Field

from rankscope.checkpoints import open_checkpoint
from rankscope.core import Config
from rankscope.core.streams import Split
from rankscope.ensembles.encoder import Encoder
from rankscope.lab import Cell, Computation, Job, Outcome, Trainer
from rankscope.lab.experiment import ModelT, RecipeT, TaskT
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.recipe import Recipe
from rankscope.scope.heads import products
from rankscope.studies.real.assets import model_folder
from rankscope.studies.text.measurement import head_records, projected_records, trained_records
from rankscope.studies.text.sources import STATES, rows_of
from rankscope.studies.text.training import LawCell, train_group
from rankscope.tasks.laws import LawNeighbors, split_rows


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


class Timed(Computation[TaskT, ModelT, RecipeT]):
    """Its first cell is computed for the clock."""

    def seconds_per_step(self, cells: Sequence[Cell[TaskT, ModelT, RecipeT]], device: str) -> float:
        """Time of one cell, times the cells; what is read once for all of them is read before."""
        self.compute(cells[0])
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


class Layer(Config):
    """A layer of MiniLM."""

    layer: int = Field(ge=0, le=5)


class Heads(Timed[Config, Layer, Config]):
    """The heads of a layer beside what the layer reads."""

    def shape_key(self, cell: Cell[Config, Layer, Config]) -> Hashable:
        """Seeds of one layer take turns."""
        return cell.model

    def compute(self, cell: Cell[Config, Layer, Config]) -> Outcome:
        """A record per head; a seed is a part of the tokens."""
        folder = model_folder()
        assert folder is not None
        block = open_checkpoint(folder).attention[cell.model.layer]
        inputs = split_rows(rows_of(f"{STATES}{cell.model.layer}"), Split.TRAIN, cell.seed)
        qk, _ = products(block, block.load())
        return Outcome(head_records(qk, inputs))
