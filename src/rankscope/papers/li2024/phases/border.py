"""The predicted border on a map: σ₂/σ₃ of ΔW_K at each of its settings, in closed form, beside what was measured."""

from typing import cast

import numpy as np
import pandas as pd

from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.papers.li2024.phases.maps import PhaseMap
from rankscope.papers.li2024.phases.shares import grid
from rankscope.papers.li2024.phases.theory import Setting, Spectrum, update_spectrum
from rankscope.tasks.patterns import GaussianNoise

TEN_TIMES = 10.0
"""Figure 2: the other singular values are at least ten times smaller than the second."""


def predicted_spectrum(phase: PhaseMap, x: float, y: float) -> Spectrum:
    """What theory says of the map's setting (x, y)."""
    changes = {**phase.fields, **phase.x.fields(x), **phase.y.fields(y)}
    task, model, train = (
        part.replace(**{name: value for name, value in changes.items() if name in type(part).model_fields})
        for part in (TASK, MODEL, TRAIN)
    )
    return update_spectrum(
        Setting(
            patterns=task.patterns, tokens=task.tokens, relevant=task.relevant_fraction,
            confusion=task.confusion_fraction, noise=cast(GaussianNoise, task.token_noise).level,
            batch=train.batch, steps=train.steps, learning_rate=train.learning_rate,
            init_scale=model.init_scale, init_noise=model.init_noise,
        )
    )  # fmt: skip


def predicted_ratios(phase: PhaseMap, table: pd.DataFrame) -> np.ndarray:
    """σ₂/σ₃ by theory, as (row, column)."""
    return np.array(
        [
            [predicted_spectrum(phase, x, y).ratio for x in phase.x.seen(table)]
            for y in phase.y.seen(table)
        ]
    )


def measured_ratios(phase: PhaseMap, table: pd.DataFrame) -> np.ndarray:
    """σ₂/σ₃ of ΔW_K at the end of training, as (row, column, seed)."""
    return grid(phase, table, lambda part: (part["sigma_k_2"] / part["sigma_k_3"]).to_numpy(dtype=float))


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
