"""li2024's experiments at three scales. Every setting that the paper leaves open is chosen here, once.

The paper gives dim, ranks, patterns, token noise, neurons and the scales of the initial weights. It leaves open the
number of tokens, the fractions of relevant and confusion tokens, the learning rate, the batch and the steps.

Why these. In gradient flow the update of W_KᵀW_Q splits in two directions: (μ_1+μ_2), through which every query finds
the relevant tokens, and (μ_1−μ_2), which tells them apart; `theory.direction_gains` has the formula. With few
relevant tokens the first dwarfs the second, attention grows much, and one direction carries it: truncation to rank 1
costs nothing. From about 0.4 relevant tokens on, the two are equal, and rank 1 loses half. The fractions below are the
least at which both directions count. Learning rate 1 and 300 steps end with a test loss under 0.001; half or twice of
either changes no verdict of the figures (the sensitivity experiment shows it). W_Q, W_K and W_V start at δ·I with
δ = 0.2 (the theory's way): from δ²·I = 0.01·I attention hardly moves before the loss is gone.

What cannot be had at once. In this regime the neurons split in two groups by what training added to them, not by what
they are in the end: the initial norms hide it. They split by ‖o_i‖ too where the vote is close, because W_O must grow
more; there attention on the relevant tokens grows in one direction, and rank 1 keeps it. The last row of the
sensitivity map is such a close vote.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from rankscope.lab import Cell, Experiment, Grid, Outcome, Scale
from rankscope.measure.updates import alignment
from rankscope.models.one_layer import TRAINED, Init, OneLayer, Output
from rankscope.papers.li2024.measurement import Examiner, converged_step
from rankscope.papers.li2024.training import seconds_per_step, seeds, ticks, together, train_group
from rankscope.tasks.patterns import BoundedNoise, GaussianNoise, Patterns
from rankscope.training.ensemble import Sgd

TASK = Patterns(
    dim=20,
    tokens=10,
    patterns=20,
    relevant_fraction=0.4,
    confusion_fraction=0.1,
    noise=GaussianNoise(level=0.1),
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

FIGURE_2_STEPS = (1, 10, 20, 30)

SEEDS = {Scale.SMOKE: (3, 2), Scale.QUICK: (20, 8), Scale.PAPER: (100, 40)}
"""Seeds of the regime experiment, and of every sweep."""

STEPS = {Scale.SMOKE: 60, Scale.QUICK: 300, Scale.PAPER: 300}

PATTERN_COUNTS = {n: {"patterns": n, "dim": n, "rank": n, "value_rank": n} for n in (10, 20, 40, 80)}
"""The theorem ties the widths to the patterns: m_a, m_b = Θ(M)."""

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
    "bounded noise τ = 0.2": {"noise": BoundedNoise(level=0.2)},
    "an output vector per position": {"output": Output.PER_POSITION},
    "500 fixed samples": {"samples": 500},
    "close vote: 40 tokens, 0.2 against 0.15": {
        "tokens": 40, "relevant_fraction": 0.2, "confusion_fraction": 0.15, "init_scale": 0.1, "learning_rate": 0.35,
        "steps": 600,
    },
}  # fmt: skip
"""One choice changed at a time, and one other regime: how far each verdict depends on them."""


def run_group(
    cells: Sequence[Cell], device: str, tick: Callable[[], None], *, records_at: Sequence[int], arrays: bool
) -> list[Outcome]:
    """Train a group and measure it at the chosen steps and at the last."""
    trajectory = train_group(
        cells, device, keep={*records_at, *(FIGURE_2_STEPS if arrays else ())}, tick=tick
    )
    examiner = Examiner(cells, trajectory.at[0], device)
    last = max(trajectory.at)
    converged = converged_step(trajectory.losses).tolist()
    per_step = [
        examiner.records(step, trajectory.at[step]) for step in sorted({*records_at, last}) if step <= last
    ]
    outcomes = []
    for member in range(len(seeds(cells))):
        records = [{**records[member], "converged_step": converged[member]} for records in per_step]
        kept = {}
        if arrays:
            for step, weights in trajectory.at.items():
                for name in TRAINED:
                    update = (weights[name] - trajectory.at[0][name])[member]
                    kept[f"sigma/{name}/{step}"] = torch.linalg.svdvals(update.cpu())
            start, end = trajectory.at[0]["w_o"], trajectory.at[last]["w_o"]
            for tag, rows in (("start", start), ("end", end), ("update", end - start)):
                kept[f"neurons/{tag}"] = torch.linalg.vector_norm(rows[member], dim=-1)
            for name in ("w_q", "w_k", "w_v"):
                update = trajectory.at[last][name] - trajectory.at[0][name]
                kept[f"alignment/{name}"] = alignment(update, examiner.patterns)[member].clone()
            kept["losses"] = trajectory.losses[:, member].clone()
        outcomes.append(Outcome(records, kept))
    return outcomes


def experiments(scale: Scale) -> list[Experiment]:
    """All experiments of the paper at a scale."""
    many, few = SEEDS[scale]
    steps = STEPS[scale]
    horizon = tuple(steps // 4 * 2**power for power in range(6))

    def experiment(
        name: str, grid: Grid, *, records_at: Sequence[int] = (), arrays: bool = False, **train: Any
    ) -> Experiment:
        return Experiment(
            name=f"li2024/{name}",
            task=TASK,
            model=MODEL,
            train=TRAIN.replace(**{"steps": steps, **train}),
            grid=grid,
            run=partial(run_group, records_at=records_at, arrays=arrays),
            together=together,
            ticks=ticks,
            probe=seconds_per_step,
        )

    variants = {
        label: {**changes, "steps": round(changes.get("steps", 300) / 300 * steps)}
        for label, changes in VARIANTS.items()
    }
    sweep = range(few)
    return [
        experiment("regime", Grid(seed=range(many)), arrays=True),
        experiment("steps", Grid(seed=sweep), records_at=horizon, steps=horizon[-1]),
        experiment("patterns", Grid(seed=sweep, patterns=PATTERN_COUNTS)),
        experiment("init_scale", Grid(seed=sweep, init_scale=(0.05, 0.1, 0.14, 0.2))),
        experiment("hidden", Grid(seed=sweep, hidden=(50, 100, 200, 400, 800))),
        experiment(
            "learning_rate", Grid(seed=sweep, learning_rate=(0.125, 0.25, 0.5, 1.0, 2.0)), steps=2 * steps
        ),
        experiment("relevant_fraction", Grid(seed=sweep, relevant_fraction=(0.3, 0.4, 0.5, 0.6, 0.8))),
        experiment("sensitivity", Grid(seed=sweep, variant=variants)),
    ]


assert experiments(Scale.QUICK)[0].size == 20
