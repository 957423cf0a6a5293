"""No stream that a training draws from is drawn from again when the trained model is measured."""

import pytest

from rankscope.catalogue import PAPERS
from rankscope.core import streams
from rankscope.core.streams import Split
from rankscope.lab import Job, Scale

EXPERIMENTS = [experiment for paper in PAPERS.values() for experiment in paper.experiments(Scale.SMOKE)]

SHARED = {
    ("patterns",): "μ_1 … μ_M are what the task asks about: a test with other patterns would be another task",
}
"""Streams that training and measurement share by design, and why."""

RECALLED = {f"amsel2024/repeated{kind}" for kind in ("", "-supplement", "-positions", "-tokens", "-dims")} | {
    "amsel2024/memory"
}
"""Where a model is asked what it remembers, on the batches that it was trained on; its error is on others."""

STARTS = "decoder"
"""The initial weights of decoders are drawn again: how much rank their heads used before training is measured too."""

DIVIDED = {"li2024/real", "li2024/digits"}
"""Where one order of given data says what is held out: tests/studies/real shows that nothing is on both sides."""


class Log:
    """The names, without numbers, of every stream drawn from while a model is trained, and while it is measured."""

    def __init__(self, monkeypatch):
        self.training, self.measuring = set(), set()
        self.known = self.training
        seed_of = streams.stream_seed

        def logged(seed, *names):
            self.known.add(tuple(name for name in streams._path(names) if isinstance(name, str)))
            return seed_of(seed, *names)

        monkeypatch.setattr(streams, "stream_seed", logged)


def drawn(experiment, cell, monkeypatch):
    log = Log(monkeypatch)
    trained = experiment.trainer.train([cell], Job())
    log.known = log.measuring
    experiment.trainer.measure([cell], trained, Job())
    return log


def one_of_each_training(experiment):
    """The first cell, and the first that trains on a fixed set."""
    cells = [cell for cell in experiment.cells() if hasattr(cell.train, "steps")]
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
def test_training_and_measurement_draw_from_other_streams(experiment, cell, monkeypatch):
    if why := experiment.requires():
        pytest.skip(f"{experiment.name} is not run: {why}")
    log = drawn(experiment, cell, monkeypatch)
    assert log.training
    recalled = {("neighbors",)} if experiment.name in RECALLED else set()
    twice = {path for path in log.training & log.measuring if path[0] != STARTS}
    assert twice <= set(SHARED) | recalled
    tested = {path for path in log.measuring if path[0].endswith(Split.TEST.value)}
    assert bool(tested) != (experiment.name in DIVIDED)
