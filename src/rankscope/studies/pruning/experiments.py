"""The paper's one-layer models, and encoders of two layers and several heads, pruned by seven rules.

The one-layer model is the paper's, trained as in its own experiments. The encoders are those of `depth`, in two wirings.
"""

from functools import partial

from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.li2024.experiments import STEPS, TASK, TRAIN
from rankscope.studies.depth.experiments import FULL, MODEL, PLAIN, WIRINGS
from rankscope.studies.depth.experiments import STEPS as ENCODER_STEPS
from rankscope.studies.depth.experiments import TASK as ENCODER_TASK
from rankscope.studies.depth.trainer import LayeredTrainer
from rankscope.studies.pruning.measurement import measured

SEEDS = {Scale.SMOKE: (2, 2), Scale.QUICK: (12, 5), Scale.PAPER: (60, 30)}
"""Seeds of the one-layer model, and of the encoders."""

SIZES = {
    Scale.SMOKE: {"heads": 2, "hidden": 60},
    Scale.QUICK: {"heads": 8, "hidden": 200},
    Scale.PAPER: {"heads": 8, "hidden": 200},
}
"""Of the encoders."""


def experiments(scale: Scale) -> list[Experiment]:
    """Neurons of one layer; neurons and heads of two."""
    many, few = SEEDS[scale]
    experiment = partial(Experiment, trainer=LayeredTrainer(measured))
    encoders = {f"two layers, {name}": WIRINGS[name] for name in (PLAIN, FULL)}
    return [
        experiment(
            "li2024/pruning",
            task=TASK,
            model=MODEL.replace(dim=TASK.dim),
            train=TRAIN.replace(steps=STEPS[scale]),
            grid=Grid(seed=range(many), encoder={"one layer": {}}),
        ),
        experiment(
            "li2024/pruning-encoders",
            task=ENCODER_TASK,
            model=MODEL.replace(layers=2, **SIZES[scale]),
            train=TRAIN.replace(steps=ENCODER_STEPS[scale]),
            grid=Grid(seed=range(few), encoder=encoders),
        ),
    ]
