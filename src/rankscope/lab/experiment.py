"""An experiment is a value: what is trained, over which grid, and how a group of cells is run."""

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from rankscope.core import Config, InputError, suggest

Scalar = float | int | str | bool
Overrides = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One training: its settings, its seed, and where it stands on the grid."""

    experiment: str
    task: Config
    model: Config
    train: Config
    seed: int
    point: tuple[tuple[str, Scalar], ...]

    def settings(self) -> dict[str, Any]:
        """Everything that decides the result, as plain data."""
        parts = {"task": self.task, "model": self.model, "train": self.train}
        return {name: part.model_dump(mode="json") for name, part in parts.items()}

    def key(self) -> str:
        """A hash of the experiment, the settings and the seed: the cell's name in the store.

        Fields at their defaults are left out, so that a new field with a default leaves all keys as they are.
        """
        settings = {"task": self.task.chosen(), "model": self.model.chosen(), "train": self.train.chosen()}
        content = [self.experiment, settings, self.seed, list(self.point)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


MISSING = "missing"
"""A record's field that says what the machine lacks, where an experiment could not be run."""


@dataclass(frozen=True)
class Outcome:
    """What one cell yields: records (rows of the table) and arrays for the figures."""

    records: list[dict[str, Scalar]]
    arrays: dict[str, Tensor] = field(default_factory=dict)


class Grid:
    """Named axes, and the seeds.

    An axis is a sequence of values for the field of that name, or a mapping from a label to the fields it changes
    (for changes that go together): `Grid(seed=range(5), patterns={10: {"patterns": 10, "dim": 10}, …})`.
    """

    def __init__(self, *, seed: Iterable[int], **axes: Sequence[Scalar] | Mapping[Any, Overrides]) -> None:
        self.seeds = tuple(int(s) for s in seed)
        self.axes: dict[str, dict[Scalar, Overrides]] = {
            name: dict(values) if isinstance(values, Mapping) else {value: {name: value} for value in values}
            for name, values in axes.items()
        }
        if not self.seeds:
            raise InputError("A grid needs at least one seed: pass seed=range(n) with n ≥ 1.")
        for name, values in self.axes.items():
            if not values:
                raise InputError(f"Axis {name!r} is empty: give it a value or leave it out.")

    def with_seeds(self, count: int) -> "Grid":
        """The same axes over the seeds 0 … count − 1."""
        return Grid(seed=range(count), **self.axes)

    def where(self, wanted: Mapping[str, Collection[str]]) -> "Grid":
        """The part of the grid on which each named axis has one of the wanted labels, given as text.

        >>> Grid(seed=range(2), rank=(1, 4, 8), layers=(1, 3)).where({"rank": ["4", "8"]}).size
        8
        """
        axes = dict(self.axes)
        for name, labels in wanted.items():
            if name not in axes:
                raise InputError(f"The grid has no axis {name!r}. {suggest(name, axes)}")
            known = {str(label): label for label in axes[name]}
            for label in labels:
                if label not in known:
                    raise InputError(f"Axis {name!r} has no {label!r}. {suggest(label, known)}")
            axes[name] = {known[label]: axes[name][known[label]] for label in known if label in labels}
        return Grid(seed=self.seeds, **axes)

    @property
    def size(self) -> int:
        """How many cells the grid has."""
        size = len(self.seeds)
        for values in self.axes.values():
            size *= len(values)
        return size

    def points(self) -> Iterable[tuple[tuple[tuple[str, Scalar], ...], dict[str, Any]]]:
        """Every point of the axes (without the seed), with the fields it changes."""
        for labels in itertools.product(*self.axes.values()):
            point = tuple(zip(self.axes, labels, strict=True))
            changes: dict[str, Any] = {}
            for name, label in point:
                changes.update(self.axes[name][label])
            yield point, changes


@dataclass(frozen=True)
class Progress:
    """What a running group is handed: a call after every step, and a file of its own for unfinished work."""

    tick: Callable[[], None]
    checkpoint: Path

    def __call__(self) -> None:
        """One step is done; raises where the run is being stopped."""
        self.tick()


Run = Callable[[Sequence[Cell], str, Progress], list[Outcome]]
"""Trains and measures a group of cells on a device; calls back after every step."""


@dataclass(frozen=True)
class Experiment:
    """A base setting, a grid over it, and the function that runs a group of its cells.

    `together` tells which cells may share a group (equal keys stack into one ensemble), `ticks` how often the run
    of a cell calls back, `probe` measures the seconds a group takes for one tick, and `dtype` names the numbers that
    a cell is computed in.
    """

    name: str
    task: Config
    model: Config
    train: Config
    grid: Grid
    run: Run
    together: Callable[[Cell], Hashable]
    ticks: Callable[[Cell], int]
    probe: Callable[[Sequence[Cell], str], float]
    dtype: Callable[[Cell], str] = lambda cell: "float32"

    @property
    def size(self) -> int:
        """How many cells there are to run."""
        return self.grid.size

    def cells(self) -> list[Cell]:
        """Every cell of the grid, seeds innermost, in a fixed order."""
        cells = []
        for point, changes in self.grid.points():
            parts = self._parts(changes)
            cells += [Cell(self.name, *parts, seed=seed, point=point) for seed in self.grid.seeds]
        return cells

    def _parts(self, changes: Overrides) -> tuple[Config, Config, Config]:
        """Task, model and training with the changed fields; a field of several parts changes in each."""
        parts = (self.task, self.model, self.train)
        known = {name for part in parts for name in type(part).model_fields}
        for name in changes:
            if name not in known:
                raise InputError(f"{self.name}: no part has a field {name!r}. {suggest(name, known)}")
        task, model, train = (
            part.replace(**{k: v for k, v in changes.items() if k in type(part).model_fields})
            for part in parts
        )
        return task, model, train
