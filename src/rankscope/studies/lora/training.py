"""Cells with adapters: what is adapted, at which rank, and how a group of them is trained."""

from collections.abc import Callable, Hashable, Sequence
from typing import cast

from pydantic import Field

from rankscope.ensembles import adapters, many_class
from rankscope.ensembles.many_class import ManyClass
from rankscope.lab import Cell
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.training import seeds
from rankscope.studies.relevant.training import start, timed, train_from
from rankscope.studies.relevant.training import together as same_shapes
from rankscope.training.sgd import Trajectory


class Adapted(ManyClass):
    """The classifier, some of whose weights learn through an adapter of that rank; the others learn themselves."""

    adapted: tuple[str, ...] = ()
    adapter_rank: int = Field(default=1, ge=1)


def models(cells: Sequence[Cell]) -> list[Adapted]:
    """Each member's model."""
    return [cast(Adapted, cell.model) for cell in cells]


def together(cell: Cell) -> Hashable:
    """What members of one ensemble must share: every shape, and what is adapted. Ranks may differ."""
    return (same_shapes(cell), models([cell])[0].adapted)


def train_group(
    cells: Sequence[Cell], device: str, *, steps: int | None = None, tick: Callable[[], None] = lambda: None
) -> tuple[Trajectory, Weights]:
    """Train the cells side by side; the trajectory, and the weights at the end with their adapters merged."""
    names = models(cells)[0].adapted
    ranks = [model.adapter_rank for model in models(cells)]
    weights = adapters.attach(start(cells, device), names, ranks, seeds(cells))
    gradients = adapters.through(many_class.hinge_gradients, names)
    trajectory = train_from(weights, cells, device, gradients=gradients, steps=steps, tick=tick)
    return trajectory, adapters.merged(trajectory.at[max(trajectory.at)], names)


def seconds_per_step(cells: Sequence[Cell], device: str) -> float:
    """Time of one step of the group."""
    return timed(lambda steps: train_group(cells, device, steps=steps)[0])
