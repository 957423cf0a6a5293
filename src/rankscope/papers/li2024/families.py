"""Settings that meet the theorem's conditions, and the experiments that judge theorem 1 and corollary 1 in them, at T."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.ensembles.patterns import Init, OneLayer
from rankscope.lab import Experiment, Grid, Scale
from rankscope.lab.experiment import changed
from rankscope.papers.li2024.measurement import CONVERGED_LOSS
from rankscope.papers.li2024.trainer import ConvergenceTrainer
from rankscope.tasks.patterns import BoundedNoise, Patterns
from rankscope.theory.updates.path import Initial, Mean
from rankscope.training.sgd import Sgd

FAMILY_A = {
    Scale.SMOKE: (5, 6, 8, 10),
    Scale.QUICK: (10, 16, 26, 42),
    Scale.PAPER: (10, 20, 40, 80),
}
FAMILY_B = {Scale.SMOKE: (5, 6, 7, 8), Scale.QUICK: (10, 14, 20, 28), Scale.PAPER: (10, 16, 25, 40)}
"""Numbers of patterns of the two families."""

LONGEST = {Scale.SMOKE: 60, Scale.QUICK: 4000, Scale.PAPER: 4000}
"""Steps after which a training is given up."""

NEURONS = (50, 100, 200, 400, 800)
RATES = (0.5, 0.25, 0.125, 0.0625)
STARTS = (0.025, 0.05, 0.1, 0.2)

INIT_REACH = 0.2
"""ξ√m, about the norm of W_O at the start."""


def conforming(patterns: int, hidden: int | None = None, **changes: Any) -> dict[str, Any]:
    """The fields of a setting of family A: it meets every condition at that many patterns, whatever the fractions."""
    neurons = hidden or round(patterns**2 * math.log(patterns) / 4)
    return {
        "patterns": patterns, "dim": patterns, "rank": patterns, "value_rank": patterns, "hidden": neurons,
        "batch": 4 * patterns, "token_noise": BoundedNoise(level=1 / patterns),
        "init_noise": INIT_REACH / math.sqrt(neurons), **changes,
    }  # fmt: skip


def few_relevant(patterns: int) -> dict[str, Any]:
    """A setting of family B: half of the batch and two thirds of the neurons, since T is proportional to M here."""
    return conforming(
        patterns,
        round(patterns**2 * math.log(patterns) / 6),
        batch=2 * patterns,
        tokens=patterns,
        relevant_fraction=1 / patterns,
        confusion_fraction=0.0,
        learning_rate=1.0,
    )


BASE = conforming(12, 150)
TASK = changed(Patterns(tokens=10, relevant_fraction=0.4, confusion_fraction=0.1), BASE)
MODEL = changed(OneLayer(init=Init.THEORY, init_scale=0.2), BASE)
TRAIN = changed(Sgd(learning_rate=0.5, until=CONVERGED_LOSS), BASE)

LAW: Mapping[str, Mapping[str, Any]] = {
    **{
        f"η = {rate:g}, α = {relevant:g}, κ = {confusion:g}": conforming(
            10, 100, learning_rate=rate, tokens=20, relevant_fraction=relevant, confusion_fraction=confusion
        )
        for rate, relevant, confusion in (
            (1.0, 0.6, 0.0), (0.5, 0.6, 0.0), (0.5, 0.4, 0.1), (0.25, 0.4, 0.1), (0.5, 0.4, 0.3), (0.125, 0.4, 0.2),
            (0.25, 0.3, 0.25), (0.12, 0.3, 0.25),
        )
    },
    **{
        label: conforming(10, hidden, init_scale=scale, init_noise=reach / math.sqrt(hidden), tokens=20)
        for label, hidden, scale, reach in (
            ("δ = 0.02", 100, 0.02, 0.2), ("δ = 0.06", 100, 0.06, 0.2), ("ξ√m = 0.02", 100, 0.2, 0.02),
            ("ξ√m = 1", 100, 0.2, 1.0), ("m = 30", 30, 0.2, 0.2), ("m = 800", 800, 0.2, 0.2),
        )
    },
}  # fmt: skip
"""Two decades of η(α − κ), and the start changed in each of its numbers."""


def law_setting(label: str) -> tuple[float, Mean, Initial]:
    """The learning rate of a setting of the law, and what gradient flow needs to know of it."""
    task, model = changed(TASK, LAW[label]), changed(MODEL, LAW[label])
    return (
        changed(TRAIN, LAW[label]).learning_rate,
        Mean(task.patterns, task.relevant_fraction, task.confusion_fraction),
        Initial(model.hidden, model.init_scale, model.init_noise),
    )


def experiments(scale: Scale, seeds: int) -> list[Experiment]:
    """Every sweep of the theorem, at T."""

    def sweep(name: str, count: int = seeds, **axes: Any) -> Experiment:
        return Experiment(
            name=f"li2024/{name}",
            task=TASK,
            model=MODEL,
            train=TRAIN.replace(steps=LONGEST[scale]),
            grid=Grid(seed=range(count), **axes),
            trainer=ConvergenceTrainer(),
        )

    return [
        sweep("patterns", patterns={count: conforming(count) for count in FAMILY_A[scale]}),
        sweep("few-relevant", patterns={count: few_relevant(count) for count in FAMILY_B[scale]}),
        sweep("learning-rate", learning_rate=RATES),
        sweep("relevant-fraction", relevant_fraction=_fractions((0.2, 0.3, 0.5, 0.8), confusion=0.1)),
        sweep("no-confusion", relevant_fraction=_fractions((0.1, 0.2, 0.4, 0.8), confusion=0.0)),
        sweep("init-scale", init_scale=STARTS),
        sweep("hidden", hidden={count: conforming(10, count) for count in NEURONS}),
        sweep("hidden-fixed", hidden={count: conforming(10, count, init_noise=0.1) for count in NEURONS}),
        sweep("law", max(2, seeds // 2), variant=LAW),
    ]


def _fractions(relevant: Sequence[float], *, confusion: float) -> dict[float, dict[str, float]]:
    return {
        share: {"relevant_fraction": share, "confusion_fraction": confusion, "tokens": 20}
        for share in relevant
    }
