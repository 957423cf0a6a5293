"""Encoders of 1 to 4 layers and 1 to 8 heads, with and without residuals and norms, on the paper's own task.

The regime is that of the paper's experiments, but for `dim` = 24, which 8 heads can share. One layer of one head without
residual and norm is then the paper's model. Every layer starts as it does; a plain layer's W_P is such that tokens come
back about as long as they were read, one with residuals starts as a small addition.

Training is stochastic gradient descent as in the paper, since Adam's steps are of no low rank even where the gradient is.
The rate is 1/layers with residuals and 3^(1 − layers) without (`training.rate`). An encoder whose test loss stays above
0.05 is marked as not trained and enters no verdict.
"""

from functools import partial
from typing import Any

from rankscope.ensembles.layered import Layered, Norm
from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.li2024.experiments import TASK as ONE_LAYER_TASK
from rankscope.papers.li2024.experiments import TRAIN
from rankscope.studies.depth.measurement import measured
from rankscope.studies.depth.trainer import LayeredTrainer

TASK = ONE_LAYER_TASK.replace(dim=24)
MODEL = Layered(dim=24, hidden=200, init_scale=0.2, init_noise=0.1)

PLAIN, FULL = "plain", "residual and norm"
HELD = "residual and norm, length held"
WIRINGS: dict[str, dict[str, Any]] = {
    PLAIN: {"residual": False, "norm": Norm.NONE, "back_noise": 1.0},
    "residual": {"residual": True, "norm": Norm.NONE, "back_noise": 0.1},
    "norm": {"residual": False, "norm": Norm.UNIT, "back_noise": 1.0},
    FULL: {"residual": True, "norm": Norm.UNIT, "back_noise": 0.1},
    HELD: {"residual": True, "norm": Norm.HELD, "back_noise": 0.1},
}

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 5, Scale.PAPER: 20}
LAYERS = {Scale.SMOKE: (1, 2), Scale.QUICK: (1, 2, 4), Scale.PAPER: (1, 2, 3, 4)}
HEADS = {Scale.SMOKE: (2,), Scale.QUICK: (1, 2, 4, 8), Scale.PAPER: (1, 2, 4, 8)}
STEPS = {Scale.SMOKE: 30, Scale.QUICK: 100, Scale.PAPER: 300}


def experiments(scale: Scale) -> list[Experiment]:
    """The grid of depths and heads in two wirings, and every wiring at two layers of one head."""
    experiment = partial(
        Experiment,
        task=TASK,
        train=TRAIN.replace(steps=STEPS[scale]),
        trainer=LayeredTrainer(measured),
    )
    seeds = range(SEEDS[scale])
    both = {name: WIRINGS[name] for name in (PLAIN, FULL)}
    grid = Grid(seed=seeds, wiring=both, layers=LAYERS[scale], heads=HEADS[scale])
    return [
        experiment("li2024/depth", model=MODEL, grid=grid),
        experiment(
            "li2024/depth-wiring", model=MODEL.replace(layers=2), grid=Grid(seed=seeds, wiring=WIRINGS)
        ),
    ]


assert experiments(Scale.QUICK)[0].size == 120
