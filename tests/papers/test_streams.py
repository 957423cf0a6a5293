"""No stream that a training draws from is drawn from again when the trained model is measured."""

import pytest

from rankscope.catalogue import PAPERS
from rankscope.core import streams
from rankscope.core.streams import Split
from rankscope.lab import Progress, Scale

EXPERIMENTS = [experiment for paper in PAPERS.values() for experiment in paper.experiments(Scale.SMOKE)]

SHARED = {
    ("patterns",): "μ_1 … μ_M are what the task asks about: a test with other patterns would be another task",
}
"""Streams that training and measurement share by design, and why."""

DIVIDED = {"li2024/real", "li2024/digits"}
"""Where one order of given data says what is held out: tests/studies/real shows that nothing is on both sides."""


class Log:
    """The names, without numbers, of every stream drawn from until the last step of training, and after it."""

    def __init__(self, steps, monkeypatch):
        self.steps, self.training, self.measuring = steps, set(), set()
        seed_of = streams.stream_seed

        def logged(seed, *names):
            known = self.training if self.steps > 0 else self.measuring
            known.add(tuple(name for name in streams._path(names) if isinstance(name, str)))
            return seed_of(seed, *names)

        monkeypatch.setattr(streams, "stream_seed", logged)

    def tick(self):
        self.steps -= 1


def drawn(experiment, cell, folder, monkeypatch):
    log = Log(cell.train.steps, monkeypatch)
    experiment.run([cell], "cpu", Progress(log.tick, folder / "state"))
    return log


def trained(cell):
    return hasattr(cell.train, "steps") and getattr(cell.task, "missing", None) is None


def one_of_each_training(experiment):
    """The first cell, and the first that trains on a fixed set."""
    cells = [cell for cell in experiment.cells() if trained(cell)]
    fixed = [cell for cell in cells if getattr(cell.train, "samples", None)]
    return cells[:1] + fixed[:1]


CELLS = [
    pytest.param(
        experiment,
        cell,
        id=f"{experiment.name}{', fixed set' if place else ''}",
        marks=[pytest.mark.real] if experiment.name == "li2024/real" else [],
    )
    for experiment in EXPERIMENTS
    for place, cell in enumerate(one_of_each_training(experiment))
]


@pytest.mark.parametrize(("experiment", "cell"), CELLS)
def test_training_and_measurement_draw_from_other_streams(experiment, cell, tmp_path, monkeypatch):
    log = drawn(experiment, cell, tmp_path, monkeypatch)
    assert log.steps <= 0, "the training is over"
    assert log.training
    assert log.training & log.measuring <= set(SHARED)
    tested = {path for path in log.measuring if path[0].endswith(Split.TEST.value)}
    assert bool(tested) != (experiment.name in DIVIDED)
