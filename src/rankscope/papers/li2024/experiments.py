"""li2024's experiments at three scales. Every setting that the paper leaves open is chosen here, once."""

from collections.abc import Mapping
from typing import Any

from rankscope.ensembles.patterns import Init, OneLayer, Output
from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.li2024 import families
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.tasks.patterns import BoundedNoise, GaussianNoise, Patterns
from rankscope.training.sgd import Sgd

SETTINGS = """\
Figures 1A to 3B. The paper gives dim, ranks, patterns, token noise, neurons and the scales of the initial weights. It
leaves open the number of tokens, the fractions of relevant and confusion tokens, the learning rate, the batch and the
steps. The first attention update has rank two: a direction (μ_1+μ_2, irrelevant patterns), through which every query
finds the relevant tokens, and μ_1−μ_2, which tells them apart. With few relevant tokens the first is the larger, and
truncation to rank 1 cannot show what figure 1B shows. With 0.4 relevant and 0.1 confusion tokens both count in the end.
W_Q, W_K and W_V start at δ·I with δ = 0.2, the theory's way; from the δ²·I = 0.01·I of section IV, which is a row of
the sensitivity map, attention hardly moves before the loss is gone. The last row of the sensitivity map is another
regime, a close vote.

Theorem 1 and corollary 1. Section IV does not meet the theorem's own conditions: its noise has length 0.45 where (6)
allows 1/M = 0.05. So the theorem is judged in a family that meets them (`conditions.py`): unit tokens within τ = 1/M of
their pattern, widths M, batch 4M, δ = 0.2, ξ = 0.2/√m, m = M² log M / 4 neurons, and everything measured at T, the
first step at which the loss of a batch is below 0.05. Family A has the fractions 0.4 and 0.1 whatever M is; family B
has few relevant tokens, a fraction 1/M, and no confusion.
"""

TASK = Patterns(
    dim=20,
    tokens=10,
    patterns=20,
    relevant_fraction=0.4,
    confusion_fraction=0.1,
    token_noise=GaussianNoise(level=0.1),
)
MODEL = OneLayer(
    dim=20,
    rank=20,
    value_rank=20,
    hidden=200,
    init=Init.THEORY,
    init_scale=0.2,
    init_noise=0.1,
    output=Output.SHARED,
)
TRAIN = Sgd(steps=300, batch=32, learning_rate=1.0)

SEEDS = {Scale.SMOKE: (3, 2), Scale.QUICK: (20, 8), Scale.PAPER: (100, 40)}
"""Seeds of the regime experiment, and of every sweep."""

HIDDEN = {Scale.SMOKE: 40, Scale.QUICK: 200, Scale.PAPER: 200}

STEPS = {Scale.SMOKE: 30, Scale.QUICK: 300, Scale.PAPER: 300}

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as chosen": {},
    "20 tokens": {"tokens": 20},
    "40 tokens": {"tokens": 40},
    "relevant 0.2": {"relevant_fraction": 0.2},
    "relevant 0.3": {"relevant_fraction": 0.3},
    "relevant 0.6": {"relevant_fraction": 0.6},
    "no confusion": {"confusion_fraction": 0.0},
    "confusion 0.2": {"confusion_fraction": 0.2},
    "learning rate 0.5": {"learning_rate": 0.5},
    "learning rate 2": {"learning_rate": 2.0},
    "batch 16": {"batch": 16},
    "batch 64": {"batch": 64},
    "half the steps": {"steps": 150},
    "twice the steps": {"steps": 600},
    "start δ = 0.1": {"init_scale": 0.1},
    "start δ² = 0.01": {"init": Init.EXPERIMENT, "init_scale": 0.1},
    "bounded noise τ = 0.2": {"token_noise": BoundedNoise(level=0.2)},
    "an output vector per position": {"output": Output.PER_POSITION},
    "500 fixed samples": {"samples": 500},
    "close vote: 40 tokens, 0.2 against 0.15": {
        "tokens": 40, "relevant_fraction": 0.2, "confusion_fraction": 0.15, "init_scale": 0.1, "learning_rate": 0.35,
        "steps": 600,
    },
}  # fmt: skip
"""One choice changed at a time, and one other regime: how far each verdict depends on them."""


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper at a scale."""
    many, few = SEEDS[scale]
    steps = STEPS[scale]

    def figures(name: str, grid: Grid, *, arrays: bool = False) -> Experiment:
        return Experiment(
            name=f"li2024/{name}",
            task=TASK,
            model=MODEL.replace(hidden=HIDDEN[scale]),
            train=TRAIN.replace(steps=steps),
            grid=grid,
            trainer=OneLayerTrainer(arrays),
        )

    variants = {
        label: {**changes, "steps": round(changes.get("steps", 300) / 300 * steps)}
        for label, changes in VARIANTS.items()
    }
    return [
        figures("regime", Grid(seed=range(many)), arrays=True),
        figures("sensitivity", Grid(seed=range(max(2, 3 * few // 4)), variant=variants)),
        *families.experiments(scale, few),
    ]


assert experiments(Scale.QUICK)[0].size == 20
