"""Progress and metrics for whoever wants to watch: one callback, and writers for TensorBoard, W&B and MLflow.

Nothing is written unless a callback is given. A callback sees every finished cell when it is stored, wherever it was
trained, and the share of the run that is done.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rankscope.core import InputError, suggest
from rankscope.lab.experiment import Cell, Experiment, Outcome
from rankscope.lab.store import Cost, Store


class Callback(Protocol):
    """What hears of a run: how far it is, and the numbers of every finished cell."""

    def progress(self, share: float) -> None:
        """Between 0 and 1 of the expected seconds are over."""

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """A cell is finished: its place on the grid, and the means of what was measured."""

    def close(self) -> None:
        """The run is over."""


class TellingStore(Store):
    """A store that tells a callback of every cell that it keeps."""

    def __init__(self, folder: Path | str, callback: Callback) -> None:
        super().__init__(folder)
        self._callback = callback

    def add(
        self, experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[Outcome], cost: Cost
    ) -> None:
        """Keep finished cells, then tell of them."""
        super().add(experiment, cells, outcomes, cost)
        for cell, outcome in zip(cells, outcomes, strict=True):
            self._callback.cell(experiment.name, {**dict(cell.point), "seed": cell.seed}, metrics_of(outcome))


def metrics_of(outcome: Outcome) -> dict[str, float]:
    """The mean over a cell's rows of every column of numbers, without values that are not finite."""
    found: dict[str, list[float]] = {}
    for row in outcome.records:
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                found.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def store_for(folder: Path | str, callback: Callback | None) -> Store:
    """The store of a run, which tells the callback if there is one."""
    return Store(folder) if callback is None else TellingStore(folder, callback)


def telling(
    callback: Callback | None, total: float, advance: Callable[[float], None] = lambda seconds: None
) -> Callable[[float], None]:
    """`advance` of a run of so many expected seconds, which also tells the callback how far the run is."""
    done = 0.0

    def told(seconds: float) -> None:
        nonlocal done
        advance(seconds)
        done += seconds
        if callback is not None and seconds and total:
            callback.progress(min(1.0, done / total))

    return told


class TensorBoard:
    """Writes event files that TensorBoard shows; cells are steps, in the order in which they finish."""

    def __init__(self, folder: Path) -> None:
        writer = _imported("torch.utils.tensorboard", "tensorboard", needs="tensorboard")
        self._writer = writer.SummaryWriter(str(folder))
        self._cells: dict[str, int] = {}
        self._looks = 0

    def progress(self, share: float) -> None:
        """The share that is done, against the number of the look."""
        self._looks += 1
        self._writer.add_scalar("progress", share, self._looks)

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """A scalar per metric, and the cell's settings as text."""
        step = self._cells[experiment] = self._cells.get(experiment, 0) + 1
        self._writer.add_text(
            f"{experiment}/settings", ", ".join(f"{k}={v}" for k, v in settings.items()), step
        )
        for name, value in metrics.items():
            self._writer.add_scalar(f"{experiment}/{name}", value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class WandB:
    """Logs to Weights & Biases, where `wandb login` or WANDB_MODE=offline says."""

    def __init__(self, folder: Path) -> None:
        self._run = _imported("wandb", "wandb").init(project="rankscope", dir=str(folder), name=folder.name)

    def progress(self, share: float) -> None:
        """The share that is done."""
        self._run.log({"progress": share})

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """The cell's settings and metrics in one entry."""
        self._run.log(
            {f"{experiment}/{name}": value for name, value in {**_plain(settings), **metrics}.items()}
        )

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class MLflow:
    """Logs to MLflow, where MLFLOW_TRACKING_URI says; cells are steps, in the order in which they finish."""

    def __init__(self, folder: Path) -> None:
        self._mlflow = _imported("mlflow", "mlflow")
        self._mlflow.start_run(run_name=folder.name)
        self._cells: dict[str, int] = {}
        self._looks = 0

    def progress(self, share: float) -> None:
        """The share that is done."""
        self._looks += 1
        self._mlflow.log_metric("progress", share, step=self._looks)

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """A metric per number, also of the settings."""
        step = self._cells[experiment] = self._cells.get(experiment, 0) + 1
        for name, value in {**_plain(settings), **metrics}.items():
            if isinstance(value, int | float):
                self._mlflow.log_metric(f"{experiment}/{name}", value, step=step)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


WRITERS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def writer(name: str, folder: Path) -> Callback:
    """The writer of that name, with files of its own under the run folder."""
    if name not in WRITERS:
        raise InputError(f"No tracker {name!r}. {suggest(name, WRITERS)}", argument="track")
    return WRITERS[name](folder / name)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float) else str(value) for name, value in settings.items()}


def _imported(module: str, extra: str, needs: str | None = None) -> Any:
    try:
        if needs is not None:
            import_module(needs)
        return import_module(module)
    except ImportError:
        raise InputError(
            f"{needs or module} cannot be imported: pip install 'rankscope[{extra}]'.", argument="track"
        ) from None
