"""Training with the update held to a rank from the start (LoRA), at three scales. All else is as in `li2024.experiments`.

W = W_0 + B A for W_Q, W_K, W_V and W_O, with B = 0 and A normal of variance 1/rank, so that at equal learning rate the
first step is on average that of full training (`models.adapters`). Two conventions for the rate: the η = 1 of full
training, and for each rank, and for full training, the best of a fixed list, `RATES`, chosen on other seeds than those that
are judged (`lora.rates`). With more patterns, and adapters on some of the weights only, η = 1.

A run that diverged counts with the loss 1 of a model that answers nothing; one that never has the training loss under
0.05 counts with all its steps.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rankscope.ensembles.one_layer import TRAINED
from rankscope.lab import Cell, Experiment, Grid, Outcome, Scale
from rankscope.lab.tidy import MEASUREMENT, WHOLE
from rankscope.papers.li2024.experiments import TASK, TRAIN
from rankscope.papers.li2024.measurement import converged_step
from rankscope.papers.li2024.training import ticks, trains
from rankscope.studies.lora.training import Adapted, seconds_per_step, together, train_group
from rankscope.studies.relevant.experiments import CLASSIFIER, voting
from rankscope.studies.relevant.measurement import Examiner

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

DIVERGED_LOSS = 1.0


def run_group(cells: Sequence[Cell], device: str, tick: Callable[[], None]) -> list[Outcome]:
    """Train a group and measure how it ends and how long it took."""
    trajectory, end = train_group(cells, device, tick=tick)
    loss = Examiner(cells, trajectory.at[0], device).loss(end)
    diverged = ~loss.isfinite()
    needed = converged_step(trajectory.losses).nan_to_num(trains(cells)[0].steps)
    return [
        Outcome(
            [
                {
                    MEASUREMENT: WHOLE,
                    "step": len(trajectory.losses),
                    "loss": DIVERGED_LOSS if diverged[member] else loss[member].item(),
                    "diverged": bool(diverged[member]),
                    "converged_step": needed[member].item(),
                }
            ],
            {"losses": trajectory.losses[:, member].cpu().clone()},
        )
        for member in range(len(cells))
    ]


def experiments(scale: Scale) -> list[Experiment]:
    """Rank against learning rate; adapters on some of the weights; and more patterns."""
    experiment = partial(
        Experiment,
        task=TASK,
        model=Adapted(**{field: getattr(CLASSIFIER, field) for field in type(CLASSIFIER).model_fields}),
        run=run_group,
        together=together,
        ticks=ticks,
        probe=seconds_per_step,
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
            "li2024/lora_parts", train=few, grid=Grid(seed=judged, adapter_rank=(1, 2), adapted=parts)
        ),
        experiment(
            "li2024/lora_relevant",
            train=many,
            grid=Grid(seed=judged, relevant_patterns=patterns, adapter_rank=_held(MANY_RANKS[scale])),
        ),
    ]


def _held(ranks: Sequence[int]) -> dict[str, Mapping[str, Any]]:
    """Full training, and all four matrices held to each of the ranks."""
    held = {str(rank): {"adapted": TRAINED, "adapter_rank": rank} for rank in ranks}
    return {FULL: {}, **held}
