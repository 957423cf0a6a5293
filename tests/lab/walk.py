"""A training for clusters: steps that leave a trace, a state after every step, and faults on demand."""

import os
import random
import signal
import time
from pathlib import Path

import torch

from rankscope.core import Config
from rankscope.lab import Experiment, Grid, Outcome, Store, Trainer, run
from rankscope.lab.runner import schedule
from rankscope.training.state import ResumeState

STEPS = 20


class Task(Config):
    width: int = 3


class Model(Config):
    scale: float = 1.0


class Train(Config):
    pause: float = 0.01


class Walk(Trainer):
    """Random walks. `trace` is a folder where an attempt leaves a file: its cell, node, process and first step.

    While the file `hold` is there, a walk stands still after its first step.
    """

    probe_steps = 1

    def __init__(self, trace=None, raising=(), killing=(), hold=None):
        self.trace, self.raising, self.killing, self.hold = trace, raising, killing, hold

    def shape_key(self, cell):
        return cell.model.scale

    def steps(self, cell):
        return STEPS

    def train(self, cells, job):
        state = ResumeState(job.state, seconds=0.0) if job.state else None
        kept = state.load("cpu") if state else None
        done, walk = (kept["done"], kept["walk"]) if kept else (0, torch.zeros(len(cells)))
        last = min(STEPS, job.steps or STEPS)
        if self.trace and job.steps is None:
            mark(self.trace, cells[0], done)
        for step in range(done, last):
            if any(cell.seed in self.raising for cell in cells) and step == 3:
                raise ValueError("this walk ends here")
            if any(cell.seed in self.killing for cell in cells) and job.steps is None:
                os.kill(os.getpid(), signal.SIGKILL)
            draws = [random.Random(1000 * cell.seed + step).gauss(0, 1) for cell in cells]
            walk = walk + torch.tensor(draws) * torch.tensor([cell.model.scale for cell in cells])
            time.sleep(cells[0].train.pause)
            if state:
                now = {"done": step + 1, "walk": walk}
                state.after_step(lambda now=now: now, job.tick)
                while self.hold and self.hold.exists():
                    time.sleep(0.05)
                    state.after_step(lambda now=now: now, job.tick)
            else:
                job.tick()
        return walk

    def measure(self, cells, trained, job):
        return [Outcome([{"end": float(end)}], {"end": end.clone()}) for end in trained]


def mark(folder, cell, step):
    """Say that this process has begun, or begun again."""
    folder.mkdir(parents=True, exist_ok=True)
    node = os.environ.get("RAY_NODE_ID") or ray_node()
    name = f"{time.time_ns()} {cell.model.scale:g}-{cell.seed} {node} {os.getpid()} {step}"
    (folder / name).touch()


def ray_node():
    import sys

    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else "here"


def begun(folder):
    """Every attempt: the group, the node, the process, the step."""
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    return [
        (group, node, int(pid), int(step)) for _, group, node, pid, step in (name.split() for name in names)
    ]


def walks(trace=None, pause=0.01, raising=(), killing=(), scales=(1.0, 2.0, 3.0), seeds=4, hold=None):
    return Experiment(
        name="walks",
        task=Task(),
        model=Model(),
        train=Train(pause=pause),
        grid=Grid(seed=range(seeds), scale=scales),
        trainer=Walk(None if trace is None else Path(trace), raising, killing, hold),
    )


def go(folder, experiment, engine=None, **options):
    """Run, in groups of two."""
    store = Store(folder)
    todo = schedule([experiment], store, "cpu", group_size=2, engine=engine)
    run(todo, store, "cpu", engine=engine, **options)
    return store
