"""Progress and metrics for whoever wants to watch: one callback, and writers for TensorBoard, W&B and MLflow.

Nothing is written unless a callback is given. A callback sees every finished cell when it is stored, wherever it was
trained, and the share of the run that is done.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rankscope.core import InputError, suggest
from rankscope.lab.experiment import Cell, Experiment, Outcome
from rankscope.lab.store import Cost, Store

LOOK = 0.01
"""The share of a run between two looks at how far it is."""


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
    done = said = 0.0

    def told(seconds: float) -> None:
        nonlocal done, said
        advance(seconds)
        done += seconds
        share = min(1.0, done / total) if total else 0.0
        if callback is not None and share > said and (share >= said + LOOK or share == 1):
            said = share
            callback.progress(share)

    return told


class TensorBoard:
    """Writes event files that TensorBoard shows, in RUN/tensorboard; cells are steps, in the order in which they finish."""

    def __init__(self, folder: Path) -> None:
        writer = _imported("torch.utils.tensorboard", "tensorboard", needs="tensorboard")
        self._writer = writer.SummaryWriter(str(folder / "tensorboard"))
        self._cells: dict[str, int] = {}
        self._looks = 0

    def progress(self, share: float) -> None:
        """The share that is done, against the number of the look."""
        self._looks += 1
        self._writer.add_scalar("progress", share, self._looks)

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """A scalar per metric, and the cell's settings as text."""
        step = self._cells[experiment] = self._cells.get(experiment, 0) + 1
        self._writer.add_text(f"{experiment}/settings", _told(settings), step)
        for name, value in metrics.items():
            self._writer.add_scalar(f"{experiment}/{name}", value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class WandB:
    """Logs to Weights & Biases, where `wandb login` or WANDB_MODE=offline says; its files lie in RUN/wandb."""

    def __init__(self, folder: Path) -> None:
        wandb = _imported("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        with _refused("wandb", "Log in with wandb login, or set WANDB_MODE=offline."):
            self._run = wandb.init(project="rankscope", dir=str(folder), name=folder.resolve().name)

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
        mlflow = _imported("mlflow", "mlflow")
        self._metric, self._tag = (getattr(mlflow.entities, name) for name in ("Metric", "RunTag"))
        with _refused("mlflow", "Name a store that it can write to in MLFLOW_TRACKING_URI."):
            self._client = mlflow.MlflowClient()
            self._id = mlflow.start_run(run_name=folder.resolve().name).info.run_id
        self._end = mlflow.end_run
        self._cells: dict[str, int] = {}
        self._looks = 0

    def progress(self, share: float) -> None:
        """The share that is done."""
        self._looks += 1
        self._log({"progress": share}, self._looks)

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """A metric per number, also of the settings, and all settings as the tag of the step, in one message."""
        step = self._cells[experiment] = self._cells.get(experiment, 0) + 1
        found = {**_plain(settings), **metrics}
        numbers = {
            f"{experiment}/{name}": value for name, value in found.items() if isinstance(value, int | float)
        }
        self._log(numbers, step, [self._tag(f"{experiment}/{step}", _told(settings))])

    def _log(self, values: Mapping[str, float], step: int, tags: Sequence[Any] = ()) -> None:
        now = round(1000 * time.time())
        kept = [self._metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=kept, tags=tags)

    def close(self) -> None:
        """End the run."""
        self._end()


WRITERS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def writer(name: str, folder: Path) -> Callback:
    """The writer of that name, for a run folder; what goes wrong while it writes is told once and stops no run."""
    if name not in WRITERS:
        raise InputError(f"No tracker {name!r}. {suggest(name, WRITERS)}", argument="track")
    return Patient(name, WRITERS[name](folder))


class Patient:
    """A callback that is let go, with a warning, when it raises: a run does not depend on who watches it."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name, self._callback = name, callback
        self._gone = False

    def _try(self, told: Callable[[], None]) -> None:
        if self._gone:
            return
        try:
            told()
        except Exception as error:
            self._gone = True
            warnings.warn(
                f"{self._name} failed and hears no more of this run: {_first_line(error)}", stacklevel=2
            )

    def progress(self, share: float) -> None:
        """Pass it on."""
        self._try(lambda: self._callback.progress(share))

    def cell(self, experiment: str, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Pass it on."""
        self._try(lambda: self._callback.cell(experiment, settings, metrics))

    def close(self) -> None:
        """Pass it on."""
        self._try(self._callback.close)


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


@contextmanager
def _refused(name: str, remedy: str) -> Iterator[None]:
    """What a tracker says when it does not begin, in one line and with a remedy."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{name} did not begin: {_first_line(error)} {remedy}", argument="track") from None


def _first_line(error: Exception) -> str:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said if said.endswith(".") else f"{said}."


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
