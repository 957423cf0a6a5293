"""A real model on real sentences, at three scales.

Quick takes a part of the data, the sentences of at most 14 tokens, and one pass over 768 of them; paper takes all of
them and three passes. The paper trains with SGD, practice with AdamW: both are run, for ΔW is what the optimizer makes of the
gradients. Of a few learning rates tried at quick, SGD jumps from 0.1 on, and AdamW does alike from 1e-4 to 5e-4; the longer
training of paper has the lower of these.
"""

import logging
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, cast

from rankscope.lab import Cell, Experiment, Grid, Outcome, Progress, Scale
from rankscope.papers.li2024.real.assets import missing
from rankscope.papers.li2024.real.measurement import EVALUATIONS, examine
from rankscope.papers.li2024.real.training import (
    FineTune,
    MiniLm,
    Optimizer,
    Reviews,
    batches,
    fine_tune,
    fresh_classifier,
    padded,
    seconds_per_step,
    split,
)

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 3, Scale.PAPER: 8}

TASKS = {
    Scale.SMOKE: Reviews(longest=8, test=16, train=16),
    Scale.QUICK: Reviews(longest=14, test=192),
    Scale.PAPER: Reviews(longest=128, test=1024),
}

MODELS = {
    Scale.SMOKE: MiniLm(layers=1),
    Scale.QUICK: MiniLm(),
    Scale.PAPER: MiniLm(),
}

STEPS = {Scale.SMOKE: 2, Scale.QUICK: 24, Scale.PAPER: 750}

BATCH = {Scale.SMOKE: 8, Scale.QUICK: 32, Scale.PAPER: 32}

RATES = {
    Scale.SMOKE: {Optimizer.SGD: 0.05, Optimizer.ADAMW: 3e-4},
    Scale.QUICK: {Optimizer.SGD: 0.05, Optimizer.ADAMW: 3e-4},
    Scale.PAPER: {Optimizer.SGD: 0.05, Optimizer.ADAMW: 1e-4},
}

TEST_BATCH = 64


def run_group(cells: Sequence[Cell], device: str, tick: Progress) -> list[Outcome]:
    """Fine-tune and examine the cells, one after the other."""
    return [run_cell(cell, device, tick) for cell in cells]


def run_cell(cell: Cell, device: str, tick: Progress) -> Outcome:
    """One fine-tuning and its measurements; a record that says what is missing where something is."""
    task, model, train = _parts(cell)
    if task.missing is not None:
        return Outcome([{"missing": task.missing}])
    training, held_out = split(task, cell.seed)
    held_out.sort(key=lambda sentence: len(sentence.tokens))
    test = [
        padded(held_out[start : start + TEST_BATCH], device) for start in range(0, len(held_out), TEST_BATCH)
    ]
    classifier = fresh_classifier(model, cell.seed, device)
    start = {name: value.detach().clone() for name, value in classifier.encoder.named_parameters()}
    fine_tune(classifier, batches(training, train.batch, cell.seed, device), train, tick=tick)
    return examine(classifier, start, test, tick=tick)


def probe(cells: Sequence[Cell], device: str) -> float:
    """Seconds of one step of every cell."""
    tasks = [_parts(cell) for cell in cells]
    return sum(
        0.0 if task.missing else seconds_per_step(task, model, train, device) for task, model, train in tasks
    )


def together(cell: Cell) -> Hashable:
    """Every cell runs alone: its model is large enough to fill a core."""
    return cell.key()


def ticks(cell: Cell) -> int:
    """Steps and evaluations of a cell."""
    return _parts(cell)[2].steps + EVALUATIONS


def experiments(scale: Scale) -> Sequence[Experiment]:
    """Fine-tuning with either optimizer; where weights or sentences are missing, a run that only says so."""
    lacking = missing()
    if lacking is not None:
        _say(f"li2024/real is not run: {lacking}.")
    optimizers: dict[str, dict[str, Any]] = {
        name.value: {"optimizer": name, "learning_rate": rate} for name, rate in RATES[scale].items()
    }
    return [
        Experiment(
            name="li2024/real",
            task=TASKS[scale].replace(missing=lacking),
            model=MODELS[scale],
            train=FineTune(
                optimizer=Optimizer.SGD,
                learning_rate=RATES[scale][Optimizer.SGD],
                steps=STEPS[scale],
                batch=BATCH[scale],
            ),
            grid=Grid(seed=range(SEEDS[scale]), optimizer=optimizers),
            run=run_group,
            together=together,
            ticks=ticks,
            probe=probe,
        )
    ]


@cache
def _say(line: str) -> None:
    """Tell whoever runs the paper, once."""
    logging.getLogger(__name__).warning(line)


def _parts(cell: Cell) -> tuple[Reviews, MiniLm, FineTune]:
    return cast(Reviews, cell.task), cast(MiniLm, cell.model), cast(FineTune, cell.train)
