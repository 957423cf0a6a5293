"""Training with the update held to a rank from the start (LoRA), at three scales. All else is as in `li2024.experiments`.

W = W_0 + B A for W_Q, W_K, W_V and W_O, with B = 0 and A normal of variance 1/rank, so that at equal learning rate the
first step is on average that of full training (`models.adapters`). Two conventions for the rate: the η = 1 of full
training, and for each rank, and for full training, the best of a fixed list, `RATES`, chosen on other seeds than those that
are judged (`lora.rates`). With more patterns, and adapters on some of the weights only, η = 1.

A run that diverged counts with the loss 1 of a model that answers nothing; one that never has the training loss under
0.05 counts with all its steps.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Experiment, Grid, Scale
from rankscope.papers.li2024.experiments import TASK, TRAIN
from rankscope.studies.lora.trainer import Adapted, AdapterTrainer
from rankscope.studies.relevant.experiments import CLASSIFIER, voting

RATES = {Scale.SMOKE: (1.0, 2.0), Scale.QUICK: (1.0, 2.0, 4.0, 8.0), Scale.PAPER: (0.5, 1.0, 2.0, 4.0, 8.0)}
FULL = "full"
RANKS = {Scale.SMOKE: (1, 2), Scale.QUICK: (1, 2, 3, 4, 8, 20), Scale.PAPER: (1, 2, 3, 4, 8, 20)}

PARTS: Mapping[str, tuple[str, ...]] = {
    "Q, K, V": ("w_q", "w_k", "w_v"),
    "O": ("w_o",),
    "all": TRAINED,
}
"""What is adapted where not all is; the rest is trained in full."""

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 8, Scale.PAPER: 40}
"""Seeds that are judged. As many before them, 0 … SEEDS − 1, choose the learning rate."""

STEPS = {Scale.SMOKE: 20, Scale.QUICK: 80, Scale.PAPER: 300}
MANY_STEPS = {Scale.SMOKE: 20, Scale.QUICK: 300, Scale.PAPER: 600}
MANY_PATTERNS = {Scale.SMOKE: (2,), Scale.QUICK: (4, 8), Scale.PAPER: (4, 6, 8)}
MANY_RANKS = {Scale.SMOKE: (1, 2), Scale.QUICK: (1, 2, 4, 8), Scale.PAPER: (1, 2, 3, 4, 6, 8, 20)}
"""With more patterns training takes longer, and needs k and k/2 among the ranks."""


def experiments(scale: Scale) -> list[Experiment]:
    """Rank against learning rate; adapters on some of the weights; and more patterns."""
    experiment = partial(
        Experiment,
        task=TASK,
        model=Adapted(**{field: getattr(CLASSIFIER, field) for field in type(CLASSIFIER).model_fields}),
        trainer=AdapterTrainer(),
    )
    few, many = TRAIN.replace(steps=STEPS[scale]), TRAIN.replace(steps=MANY_STEPS[scale])
    judged = range(SEEDS[scale], 2 * SEEDS[scale])
    ranks = _held(RANKS[scale])
    parts = {name: {"adapted": part} for name, part in PARTS.items()}
    patterns = {count: voting(count, count) for count in MANY_PATTERNS[scale]}
    return [
        experiment(
            "li2024/lora",
            train=few,
            grid=Grid(seed=range(judged.stop), adapter_rank=ranks, learning_rate=RATES[scale]),
        ),
        experiment(
            "li2024/lora-parts", train=few, grid=Grid(seed=judged, adapter_rank=(1, 2), adapted=parts)
        ),
        experiment(
            "li2024/lora-relevant",
            train=many,
            grid=Grid(seed=judged, relevant_patterns=patterns, adapter_rank=_held(MANY_RANKS[scale])),
        ),
    ]


def _held(ranks: Sequence[int]) -> dict[str, Mapping[str, Any]]:
    """Full training, and all four matrices held to each of the ranks."""
    held = {str(rank): {"adapted": TRAINED, "adapter_rank": rank} for rank in ranks}
    return {FULL: {}, **held}
