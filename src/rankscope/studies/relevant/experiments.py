"""k patterns that vote, in k classes or in fewer, at three scales. All else is as in `li2024.experiments`.

The loss is the hinge of Weston and Watkins, averaged over the rivals; each neuron speaks for one class. The batch is the
multiple of k next to 32, so that every pattern wins equally often. One output vector a with two signs is the case k = 2.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rankscope.ensembles.patterns import ManyClass
from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.studies.relevant.trainer import VoteTrainer

CLASSIFIER = ManyClass(**{name: getattr(MODEL, name) for name in type(MODEL).model_fields})

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 8, Scale.PAPER: 40}
STEPS = {Scale.SMOKE: 40, Scale.QUICK: 300, Scale.PAPER: 600}
PATTERNS = {Scale.SMOKE: (2, 4), Scale.QUICK: (2, 3, 4, 5, 6, 7, 8), Scale.PAPER: (2, 3, 4, 5, 6, 7, 8)}
IN_CLASSES = {
    Scale.SMOKE: ((4, 2),),
    Scale.QUICK: ((4, 2), (6, 2), (8, 2), (6, 3), (8, 4)),
    Scale.PAPER: ((4, 2), (6, 2), (8, 2), (6, 3), (8, 4)),
}
"""Patterns and classes where they are not as many."""


def voting(patterns: int, classes: int) -> Mapping[str, Any]:
    """The settings of `patterns` patterns in `classes` classes."""
    return {
        "relevant_patterns": patterns,
        "classes": classes,
        "batch": patterns * round(TRAIN.batch / patterns),
    }


def experiments(scale: Scale) -> list[Experiment]:
    """The sweep over k with k classes, and patterns that share classes."""
    experiment = partial(
        Experiment,
        task=TASK,
        model=CLASSIFIER,
        train=TRAIN.replace(steps=STEPS[scale]),
        trainer=VoteTrainer(),
    )
    seeds = range(SEEDS[scale])
    as_many = {count: voting(count, count) for count in PATTERNS[scale]}
    fewer = {f"{patterns} in {classes}": voting(patterns, classes) for patterns, classes in IN_CLASSES[scale]}
    return [
        experiment("li2024/relevant", grid=Grid(seed=seeds, relevant_patterns=as_many)),
        experiment("li2024/classes", grid=Grid(seed=seeds, vote=fewer)),
    ]
