"""The three maps as experiments. Training is the paper's own reproduction, unreduced: what is saved, is saved elsewhere.

A test set has 256 samples instead of 512, put together from batches that are drawn anyway, and a setting has few seeds. In
the map of token noise a sample has 20 tokens and a batch 16 samples instead of 10 and 32: the same number of tokens a step.
Fewer steps or neurons would be cheaper and change verdicts: on every other setting of the map of token noise, five seeds
each, figure 3B differs by majority at 28 % of the settings after 150 steps instead of 300, and at 19 % with 100 neurons
instead of 200, where five other seeds alone make it differ at 11 %.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial

import torch

from rankscope.lab import Cell, Experiment, Grid, Outcome, Progress, Scale
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.experiments import FIGURE_2_STEPS
from rankscope.papers.li2024.measurement import Examiner, converged_step, singular_value_growth
from rankscope.papers.li2024.training import seconds_per_step, seeds, tasks, ticks, together, train_group
from rankscope.studies.phases.maps import MAPS, PhaseMap
from rankscope.tasks.patterns import CHUNK, PatternBatch, batches, frames

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 3, Scale.PAPER: 12}
STEPS = {Scale.SMOKE: 30, Scale.QUICK: 300, Scale.PAPER: 300}
TEST_SAMPLES = {Scale.SMOKE: 64, Scale.QUICK: 256, Scale.PAPER: 512}


class Surveyor(Examiner):
    """An examiner whose test set is put together from small batches, all of which are drawn anyway."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str, samples: int) -> None:
        drawn = list(
            batches(
                tasks(cells), seeds(cells), split="test", steps=CHUNK, batch=samples // CHUNK, device=device
            )
        )
        self.start = start
        self.test = PatternBatch(
            *(
                torch.cat([getattr(part, field.name) for part in drawn], dim=1)
                for field in fields(PatternBatch)
            )
        )
        self.relevant = self.test.relevant()
        self.mass_start = self.contributions(start)[1]["mass"]
        self.patterns = torch.stack(frames(tasks(cells), seeds(cells), device=device)).to(self.test.x.dtype)


def run_group(cells: Sequence[Cell], device: str, tick: Progress, *, samples: int) -> list[Outcome]:
    """Train a group and measure it at the end, in the columns of the paper's own experiments."""
    trajectory = train_group(cells, device, keep=FIGURE_2_STEPS, tick=tick)
    last = max(trajectory.at)
    records = Surveyor(cells, trajectory.at[0], device, samples).records(last, trajectory.at[last])
    whole = zip(
        converged_step(trajectory.losses).tolist(), singular_value_growth(trajectory.at).tolist(), strict=True
    )
    return [
        Outcome([{**record, "converged_step": step, "sigma_k_growth": factor}])
        for record, (step, factor) in zip(records, whole, strict=True)
    ]


def experiments(scale: Scale) -> list[Experiment]:
    """One experiment a map."""

    def experiment(phase: PhaseMap) -> Experiment:
        axes = {axis.name: axis.over(scale) for axis in (phase.y, phase.x)}
        return Experiment(
            f"li2024/phases_{phase.name}",
            *phase.parts({"steps": STEPS[scale]}),
            grid=Grid(seed=range(SEEDS[scale]), **axes),
            run=partial(run_group, samples=TEST_SAMPLES[scale]),
            together=together,
            ticks=ticks,
            probe=seconds_per_step,
        )

    return [experiment(phase) for phase in MAPS.values()]
