"""The three maps as experiments. Training is the paper's own reproduction, unreduced: what is saved, is saved elsewhere.

A test set has 256 samples instead of 512, put together from batches that are drawn anyway, and a setting has few seeds. In
the map of token noise a sample has 20 tokens and a batch 16 samples instead of 10 and 32: the same number of tokens a step.
Fewer steps or neurons would be cheaper and change verdicts: on every other setting of the map of token noise, five seeds
each, figure 3B differs by majority at 28 % of the settings after 150 steps instead of 300, and at 19 % with 100 neurons
instead of 200, where five other seeds alone make it differ at 11 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from rankscope.core.streams import Split
from rankscope.lab import Experiment, Grid, Scale
from rankscope.linalg.weights import Weights
from rankscope.papers.li2024.measurement import Examiner
from rankscope.papers.li2024.trainer import OneLayerCell, OneLayerTrainer
from rankscope.studies.phases.maps import MAPS, PhaseMap
from rankscope.tasks.patterns import CHUNK, PatternBatch, batches

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 3, Scale.PAPER: 12}
STEPS = {Scale.SMOKE: 10, Scale.QUICK: 300, Scale.PAPER: 300}
TEST_SAMPLES = {Scale.SMOKE: 64, Scale.QUICK: 256, Scale.PAPER: 512}


@dataclass(frozen=True)
class SurveyTrainer(OneLayerTrainer):
    """The paper's model, measured at the end on a smaller test set of so many samples."""

    samples: int = 0

    def examiner(self, cells: Sequence[OneLayerCell], start: Weights, device: str) -> Examiner:
        """One whose test set is put together from small batches, all of which are drawn anyway."""
        drawn = list(
            batches(
                [cell.task for cell in cells],
                [cell.seed for cell in cells],
                split=Split.TEST,
                steps=CHUNK,
                batch=self.samples // CHUNK,
                device=device,
            )
        )
        names = [field.name for field in fields(PatternBatch)]
        test = PatternBatch(*(torch.cat([getattr(part, name) for part in drawn], dim=1) for name in names))
        return Examiner(cells, start, device, test)


def experiments(scale: Scale) -> list[Experiment]:
    """One experiment a map."""

    def experiment(phase: PhaseMap) -> Experiment:
        axes = {axis.name: axis.over(scale) for axis in (phase.y, phase.x)}
        return Experiment(
            f"li2024/phases-{phase.name}",
            *phase.parts({"steps": STEPS[scale]}),
            grid=Grid(seed=range(SEEDS[scale]), **axes),
            trainer=SurveyTrainer(samples=TEST_SAMPLES[scale]),
        )

    return [experiment(phase) for phase in MAPS.values()]
