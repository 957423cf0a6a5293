"""The predicted border on a map, and the measured one: where σ₂/σ₃ of ΔW_K falls to ten."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pandas as pd

from rankscope.lab.tidy import rows_of
from rankscope.studies.phases.maps import PhaseMap
from rankscope.studies.phases.shares import grid
from rankscope.tasks.patterns import GaussianNoise
from rankscope.theory.updates.path import Mean
from rankscope.theory.updates.phases import PhaseSetting

Border = Callable[[PhaseSetting], float]
"""A predicted token noise."""

TEN_TIMES = 10.0
"""Figure 2: the other singular values are at least ten times smaller than the second."""


def setting(phase: PhaseMap, x: float, y: float) -> PhaseSetting:
    """The map's setting (x, y) in the words of the theory."""
    task, model, train = phase.parts({**phase.x.fields(x), **phase.y.fields(y)})
    return PhaseSetting(
        mean=Mean(task.patterns, task.relevant_fraction, task.confusion_fraction), tokens=task.tokens,
        noise=cast(GaussianNoise, task.token_noise).level,
        batch=train.batch, steps=train.steps, learning_rate=train.learning_rate,
        init_scale=model.init_scale, init_noise=model.init_noise,
    )  # fmt: skip


def on_predicted_side(phase: PhaseMap, table: pd.DataFrame, border: Border) -> np.ndarray:
    """The share of settings at which σ₂/σ₃ ≥ 10 is as predicted, rank two where σ is below the border, one a seed."""
    settings = [[setting(phase, x, y) for x in phase.x.seen(table)] for y in phase.y.seen(table)]
    predicted = np.array([[one.noise <= border(one) for one in row] for row in settings])
    measured = measured_ratios(phase, table) >= TEN_TIMES
    return np.asarray((measured == predicted[..., None]).mean(axis=(0, 1)))


def measured_ratios(phase: PhaseMap, table: pd.DataFrame) -> np.ndarray:
    """σ₂/σ₃ of ΔW_K at the end of training, as (row, column, seed)."""
    spectra = rows_of(table, "spectrum", matrix="k")
    sigma = spectra.pivot(index=[phase.y.name, phase.x.name, "seed"], columns="place", values="sigma")
    return grid(phase, table, (sigma[2] / sigma[3]).tolist())


def place(values: Sequence[float], value: float) -> float:
    """Where a value lies among the rising values of a logarithmic axis, in cells; the map's edges if beyond.

    >>> place([1.0, 2.0, 4.0], 2.0), place([1.0, 2.0, 4.0], 0.0), place([1.0, 2.0, 4.0], 99.0)
    (1.0, -0.5, 2.5)
    """
    a_cell = np.log(values[-1] / values[0]) / (len(values) - 1)
    cells = np.log(max(value, 1e-12) / values[0]) / a_cell
    return float(np.clip(cells, -0.5, len(values) - 0.5))


def crossings(ratios: np.ndarray, level: float) -> np.ndarray:
    """Along each row, the place of the column at which the ratio falls through `level`, linear in its logarithm.

    −½ where it is below from the start, columns − ½ where it never falls: the edges of the map.

    >>> crossings(np.array([[100.0, 10.0, 1.0], [9.0, 1.0, 1.0], [100.0, 100.0, 100.0]]), 10.0).tolist()
    [1.0, -0.5, 2.5]
    """
    above = np.log(np.maximum(ratios, 1e-12) / level)
    places = []
    for row in above:
        below = np.flatnonzero(row < 0)
        if not len(below):
            places.append(len(row) - 0.5)
        elif below[0] == 0:
            places.append(-0.5)
        else:
            last = below[0] - 1
            places.append(last + row[last] / (row[last] - row[last + 1]))
    return np.array(places)
