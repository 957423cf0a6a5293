"""Cells with adapters: what is adapted, at which rank, and how a group of them is trained."""

from collections.abc import Hashable, Sequence

from pydantic import Field

from rankscope.ensembles import adapters
from rankscope.ensembles import patterns as many_class
from rankscope.ensembles.patterns import ManyClass
from rankscope.lab import Cell, Job, Outcome
from rankscope.lab.tidy import MEASUREMENT, WHOLE
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.measurement import converged_step
from rankscope.studies.relevant.measurement import Examiner
from rankscope.studies.relevant.trainer import ClassTrainer
from rankscope.tasks.patterns import Patterns
from rankscope.training.sgd import Sgd, Trajectory

DIVERGED_LOSS = 1.0
"""What a training that diverged counts with: the loss of a model that answers nothing."""


class Adapted(ManyClass):
    """The classifier, some of whose weights learn through an adapter of that rank; the others learn themselves."""

    adapted: tuple[str, ...] = ()
    adapter_rank: int = Field(default=1, ge=1)


AdaptedCell = Cell[Patterns, Adapted, Sgd]


class AdapterTrainer(ClassTrainer[Adapted, tuple[Trajectory, Weights]]):
    """The trajectory, and the weights at the end with their adapters merged."""

    def shape_key(self, cell: AdaptedCell) -> Hashable:
        """Every shape, and what is adapted. Ranks may differ."""
        return super().shape_key(cell), cell.model.adapted

    def train(self, cells: Sequence[AdaptedCell], job: Job) -> tuple[Trajectory, Weights]:
        """Train the adapters, and whatever is not adapted."""
        names = cells[0].model.adapted
        ranks, seeds = [cell.model.adapter_rank for cell in cells], [cell.seed for cell in cells]
        weights = adapters.attach(self.start(cells, job.device), names, ranks, seeds)
        gradients = adapters.through(many_class.hinge_gradients, names)
        trajectory = self.fit(cells, weights, job, gradients)
        return trajectory, adapters.merged(trajectory.at[max(trajectory.at)], names)

    def measure(
        self, cells: Sequence[AdaptedCell], trained: tuple[Trajectory, Weights], job: Job
    ) -> list[Outcome]:
        """How each member ends and how long it took."""
        trajectory, end = trained
        loss = Examiner(cells, trajectory.at[0], job.device).loss(end)
        diverged = ~loss.isfinite()
        needed = converged_step(trajectory.losses).nan_to_num(cells[0].train.steps)
        return [
            Outcome(
                [
                    {
                        MEASUREMENT: WHOLE,
                        "step": len(trajectory.losses),
                        "loss": DIVERGED_LOSS if diverged[member] else loss[member].item(),
                        "diverged": bool(diverged[member]),
                        "converged_step": needed[member].item(),
                    }
                ],
                {"losses": trajectory.losses[:, member].cpu().clone()},
            )
            for member in range(len(cells))
        ]
