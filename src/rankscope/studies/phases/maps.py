"""Three maps of settings: which two numbers vary, over which values, and what has to go with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from rankscope.ensembles.patterns import OneLayer
from rankscope.lab import Scale
from rankscope.lab.experiment import Overrides, changed
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.tasks.patterns import GaussianNoise, Patterns
from rankscope.training.sgd import Sgd


@dataclass(frozen=True)
class Axis:
    """One setting: its column, its name with the paper's letter, its values at each scale, and the fields they change."""

    name: str
    label: str
    values: Mapping[Scale, Sequence[float]]
    here: float
    fields: Callable[[Any], Overrides]

    def over(self, scale: Scale) -> dict[float, Overrides]:
        """The axis of a grid."""
        return {value: self.fields(value) for value in self.values[scale]}

    def seen(self, table: pd.DataFrame) -> list[float]:
        """The values in a table, rising."""
        return sorted(table[self.name].unique().tolist())

    def here_in(self, table: pd.DataFrame) -> int:
        """The place of the paper's own value among them."""
        return self.seen(table).index(self.here)


@dataclass(frozen=True)
class PhaseMap:
    """Two axes over the paper's setting, `here` on both; `fields` is what else differs from it, in all cells."""

    name: str
    title: str
    x: Axis
    y: Axis
    fields: Overrides = field(default_factory=dict)

    def parts(self, changes: Overrides) -> tuple[Patterns, OneLayer, Sgd]:
        """Task, model and training of the map with more fields changed."""
        fields = {**self.fields, **changes}
        return changed(TASK, fields), changed(MODEL, fields), changed(TRAIN, fields)


def _octaves(here: float, low: int, high: int, parts: int) -> tuple[float, ...]:
    """`parts` values an octave, from 2^(low/2) to 2^(high/2) times `here`."""
    places = range(low * parts // 2, high * parts // 2 + 1)
    return tuple(float(f"{here * 2 ** (place / parts):.3g}") for place in places)


def _scales(here: float, low: int, high: int, coarse: Sequence[float]) -> dict[Scale, Sequence[float]]:
    """Half octaves at quick and quarter octaves at paper: 12 and 23 values where high − low = 11."""
    return {
        Scale.SMOKE: coarse,
        Scale.QUICK: _octaves(here, low, high, 2),
        Scale.PAPER: _octaves(here, low, high, 4),
    }


def _width(patterns: int) -> Overrides:
    return {"patterns": patterns, "dim": patterns, "rank": patterns, "value_rank": patterns}


TOKENS = 20
"""Tokens of a sample where their shares vary: 10 have too few steps between 0.2 and 0.9."""

NOISE = PhaseMap(
    "noise",
    "token noise × relevant tokens",
    x=Axis("noise", "token noise σ", _scales(0.1, -4, 7, (0.1, 0.2, 0.8)), 0.1,
           lambda level: {"token_noise": GaussianNoise(level=level)}),
    y=Axis("relevant", "share of relevant tokens α",
           {Scale.SMOKE: (0.2, 0.4, 0.7),
            Scale.QUICK: tuple(n / TOKENS for n in (3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18)),
            Scale.PAPER: tuple(n / TOKENS for n in range(3, 19))},
           TASK.relevant_fraction, lambda share: {"relevant_fraction": share}),
    fields={"tokens": TOKENS, "batch": TRAIN.batch * TASK.tokens // TOKENS},
)  # fmt: skip

START = PhaseMap(
    "start",
    "initial scale × learning rate",
    x=Axis("rate", "learning rate η", _scales(1.0, -5, 6, (0.25, 1.0, 4.0)), TRAIN.learning_rate,
           lambda rate: {"learning_rate": rate}),
    y=Axis("scale", "initial scale δ", _scales(0.2, -8, 3, (0.05, 0.2, 0.4)), MODEL.init_scale,
           lambda scale: {"init_scale": scale}),
)  # fmt: skip

SIZES = PhaseMap(
    "sizes",
    "patterns × neurons",
    x=Axis("patterns", "patterns M = d", {
               Scale.SMOKE: (5, 20, 28),
               Scale.QUICK: (3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 28, 40),
               Scale.PAPER: (3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 34, 40, 48, 56, 68, 80)},
           TASK.patterns, _width),
    y=Axis("neurons", "neurons m", {
               Scale.SMOKE: (20, 200, 400),
               Scale.QUICK: (6, 10, 14, 20, 28, 40, 56, 80, 112, 160, 200, 280),
               Scale.PAPER: (6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80, 96, 112, 136, 160, 200, 280, 400)},
           MODEL.hidden, lambda neurons: {"hidden": neurons}),
)  # fmt: skip

MAPS = {phase.name: phase for phase in (NOISE, START, SIZES)}
