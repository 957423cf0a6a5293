"""An experiment is a value: what is trained, over which grid, and by whom."""

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from torch import Tensor
from typing_extensions import TypeVar

from rankscope.core import Config, InputError, suggest

if TYPE_CHECKING:
    from rankscope.lab.trainer import Trainer

TaskT = TypeVar("TaskT", bound=Config, default=Any)
ModelT = TypeVar("ModelT", bound=Config, default=Any)
RecipeT = TypeVar("RecipeT", bound=Config, default=Any)
ConfigT = TypeVar("ConfigT", bound=Config)

Scalar = float | int | str | bool
Overrides = Mapping[str, Any]


@dataclass(frozen=True)
class Cell(Generic[TaskT, ModelT, RecipeT]):
    """One training: its settings, its seed, and its place on the grid."""

    experiment: str
    task: TaskT
    model: ModelT
    train: RecipeT
    seed: int
    point: tuple[tuple[str, Scalar], ...]

    def settings(self) -> dict[str, Any]:
        """Everything that decides the result, as plain data."""
        parts: dict[str, Config] = {"task": self.task, "model": self.model, "train": self.train}
        return {name: part.model_dump(mode="json") for name, part in parts.items()}

    def key(self) -> str:
        """A hash of the experiment, the settings and the seed: the cell's name in the store.

        Fields at their defaults are left out, so that a new field with a default leaves all keys as they are.
        """
        settings = {"task": self.task.chosen(), "model": self.model.chosen(), "train": self.train.chosen()}
        content = [self.experiment, settings, self.seed, list(self.point)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


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


def _nothing_missing() -> str | None:
    return None


@dataclass(frozen=True)
class Experiment(Generic[TaskT, ModelT, RecipeT]):
    """A base setting, a grid over it, and who trains and measures its cells.

    `requires` says what this machine lacks for it, with the remedy; None where nothing is missing.
    """

    name: str
    task: TaskT
    model: ModelT
    train: RecipeT
    grid: Grid
    trainer: "Trainer[TaskT, ModelT, RecipeT]"
    requires: Callable[[], str | None] = _nothing_missing

    @property
    def size(self) -> int:
        """How many cells there are to run."""
        return self.grid.size

    @property
    def not_run(self) -> str | None:
        """Why it cannot be run here, as a sentence; None where it can."""
        lack = self.requires()
        return None if lack is None else f"{self.name} is not run: {lack}."

    def cells(self) -> list[Cell[TaskT, ModelT, RecipeT]]:
        """Every cell of the grid, seeds innermost, in a fixed order."""
        cells: list[Cell[TaskT, ModelT, RecipeT]] = []
        for point, changes in self.grid.points():
            parts = self._parts(changes)
            cells += [Cell(self.name, *parts, seed=seed, point=point) for seed in self.grid.seeds]
        return cells

    def _parts(self, changes: Overrides) -> tuple[TaskT, ModelT, RecipeT]:
        """Task, model and training with the changed fields; a field of several parts changes in each."""
        parts: tuple[Config, ...] = (self.task, self.model, self.train)
        known = {name for part in parts for name in type(part).model_fields}
        for name in changes:
            if name not in known:
                raise InputError(f"{self.name}: no part has a field {name!r}. {suggest(name, known)}")
        return changed(self.task, changes), changed(self.model, changes), changed(self.train, changes)


def changed(part: ConfigT, fields: Overrides) -> ConfigT:
    """A part of an experiment with those of the fields that it has."""
    return part.replace(**{name: value for name, value in fields.items() if name in type(part).model_fields})
