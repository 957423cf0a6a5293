"""Cells that only take time, for benchmarks of what surrounds them."""

import time

from rankscope.core import Config
from rankscope.lab import Experiment, Grid, Outcome, Trainer


class Nothing(Config):
    pass


class Nap(Config):
    seconds: float = 0.0


class Sleeper(Trainer):
    def __init__(self, stacked):
        self.stacked = stacked

    def shape_key(self, cell):
        return cell.train.seconds

    def steps(self, cell):
        return 1

    def train(self, cells, job):
        time.sleep(cells[0].train.seconds)
        job.tick()

    def measure(self, cells, trained, job):
        return [Outcome([{"value": float(cell.seed)}]) for cell in cells]


def sleepers(cells, seconds, stacked=False):
    return Experiment(
        name="sleepers",
        task=Nothing(),
        model=Nothing(),
        train=Nap(seconds=seconds),
        grid=Grid(seed=range(cells)),
        trainer=Sleeper(stacked),
    )
