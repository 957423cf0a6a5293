"""A cheap experiment whose cells leave a trace when they are computed, for tests that kill it."""

import os
import random
import time
from pathlib import Path

import torch

from rankscope.core import Config
from rankscope.lab import Experiment, Grid, Outcome, Store, Trainer, run
from rankscope.lab.runner import schedule


class Task(Config):
    width: int = 3


class Model(Config):
    scale: float = 1.0


class Train(Config):
    pause: float = 0.002


class ToyTrainer(Trainer):
    stacked = False

    def __init__(self, seconds=lambda cells: 0.01, shape=lambda cell: 0):
        self.seconds, self.shape = seconds, shape

    def shape_key(self, cell):
        return self.shape(cell)

    def steps(self, cell):
        return 1

    def train(self, cells, job):
        time.sleep(sum(cell.train.pause for cell in cells))

    def measure(self, cells, trained, job):
        trace = os.environ.get("TOY_TRACE")
        outcomes = []
        for cell in cells:
            if trace:
                with Path(trace).open("a") as file:
                    file.write(cell.key() + "\n")
            draw = random.Random(cell.seed)
            values = torch.tensor([draw.random() for _ in range(cell.task.width)]) * cell.model.scale
            outcomes.append(Outcome([{"total": float(values.sum())}], {"values": values}))
            job.tick()
        return outcomes

    def seconds_per_step(self, cells, device):
        return self.seconds(cells)


def stacked(seconds=lambda cells: 0.01):
    """The toy's trainer for stacks, whose steps take as long as is said."""
    trainer = ToyTrainer(seconds)
    trainer.stacked = True
    return trainer


def toy(cells=60, pause=0.002):
    return Experiment(
        name="toy",
        task=Task(),
        model=Model(),
        train=Train(pause=pause),
        grid=Grid(seed=range(cells // 3), scale=(1.0, 2.0, 3.0)),
        trainer=ToyTrainer(),
    )


def go(folder, cells=60, pause=0.002):
    store = Store(folder)
    run(schedule([toy(cells, pause)], store, "cpu"), store, "cpu")


def go_traced(folder, trace, cells=60, pause=0.002):
    os.environ["TOY_TRACE"] = str(trace)
    torch.set_num_threads(2)  # as many workers on every machine, so that a kill meets a run under way
    go(folder, cells, pause)
