"""A real model on real sentences and a small one on real digits, at three scales.

**Sentences.** Quick takes a part of the data, the sentences of at most 14 tokens, and one pass over 768 of them; paper takes
all of them and three passes. The paper trains with SGD, practice with AdamW: both are run, for ΔW is what the optimizer
makes of the gradients. Of a few learning rates tried at quick, SGD jumps from 0.1 on, and AdamW does alike from 1e-4 to 5e-4.
The longer training of paper has lower ones: SGD at 0.05 loses again what it learned (after 160 steps), at 0.02 it does not.

**Digits.** `digits.py` says what is learned first and what after. Quick has 80 steps of 32 images, two passes over them, and
2 or 8 classes; paper has 800, and 4 classes as well. Of the rates tried with one seed, SGD does alike from 0.05 to 0.2, AdamW
from 5e-4 to 2e-3.
"""

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from typing import Any, cast

from rankscope.core import Config
from rankscope.lab import MISSING, Cell, Experiment, Grid, Outcome, Progress, Scale
from rankscope.studies.real import digits, sentences
from rankscope.studies.real.assets import missing, missing_digits
from rankscope.studies.real.digits import Digits, SmallVit
from rankscope.studies.real.measurement import EVALUATIONS, examine
from rankscope.studies.real.sentences import MiniLm, Reviews
from rankscope.studies.real.subjects import DIGITS, SENTENCES, Subject
from rankscope.studies.real.training import FineTune, Optimizer, Trial, fine_tune

Prepare = Callable[[Any, Any, FineTune, int, str], Trial]
"""From task, model, training, seed and device to what a cell needs."""

SENTENCE_SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 3, Scale.PAPER: 8}

REVIEWS = {
    Scale.SMOKE: Reviews(longest=8, test=16, train=16),
    Scale.QUICK: Reviews(longest=14, test=192),
    Scale.PAPER: Reviews(longest=128, test=1024),
}

MINI_LM = {Scale.SMOKE: MiniLm(layers=1), Scale.QUICK: MiniLm(), Scale.PAPER: MiniLm()}

SENTENCE_TRAINING = {
    Scale.SMOKE: FineTune(steps=2, batch=8),
    Scale.QUICK: FineTune(steps=24, batch=32),
    Scale.PAPER: FineTune(steps=750, batch=32),
}

SENTENCE_RATES = {
    Scale.SMOKE: {Optimizer.SGD: 0.05, Optimizer.ADAMW: 3e-4},
    Scale.QUICK: {Optimizer.SGD: 0.05, Optimizer.ADAMW: 3e-4},
    Scale.PAPER: {Optimizer.SGD: 0.02, Optimizer.ADAMW: 1e-4},
}

TEST_IMAGES = {Scale.SMOKE: 32, Scale.QUICK: 240, Scale.PAPER: 360}

DIGIT_SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 3, Scale.PAPER: 8}

VIT = {
    Scale.SMOKE: SmallVit(dim=16, layers=1, hidden=32),
    Scale.QUICK: SmallVit(),
    Scale.PAPER: SmallVit(),
}

DIGIT_TRAINING = {
    Scale.SMOKE: FineTune(steps=4, batch=8, pretraining=4),
    Scale.QUICK: FineTune(steps=80, batch=32, pretraining=160),
    Scale.PAPER: FineTune(steps=800, batch=32, pretraining=400),
}

DIGIT_RATES = {Optimizer.SGD: 0.1, Optimizer.ADAMW: 1e-3}

CLASS_COUNTS = {Scale.SMOKE: (2, 8), Scale.QUICK: (2, 8), Scale.PAPER: (2, 4, 8)}


def run_group(prepare: Prepare, cells: Sequence[Cell], device: str, tick: Progress) -> list[Outcome]:
    """Fine-tune and examine the cells, one after the other."""
    return [run_cell(prepare, cell, device, tick) for cell in cells]


def run_cell(prepare: Prepare, cell: Cell, device: str, tick: Progress) -> Outcome:
    """One fine-tuning and its measurements; a record that says what is missing where something is."""
    task, train = _parts(cell)
    if task.missing is not None:
        return Outcome([{MISSING: task.missing}])
    classifier, data, test = prepare(task, cell.model, train, cell.seed, device)
    start = {name: value.detach().clone() for name, value in classifier.encoder.named_parameters()}
    fine_tune(classifier, data, train, tick=tick)
    return examine(classifier, start, test, tick=tick)


def probe(prepare: Prepare, cells: Sequence[Cell], device: str) -> float:
    """Seconds of one step of every cell."""
    seconds = 0.0
    for cell in cells:
        task, train = _parts(cell)
        seconds += 0.0 if task.missing else seconds_per_step(prepare, task, cell.model, train, device)
    return seconds


@cache
def seconds_per_step(prepare: Prepare, task: Config, model: Config, train: FineTune, device: str) -> float:
    """Time of one training step, after one to warm up."""
    single = train.replace(steps=1, pretraining=0)
    classifier, data, _ = prepare(task, model, single, 0, device)
    fine_tune(classifier, data, single)
    start = time.perf_counter()
    fine_tune(classifier, data, single)
    return time.perf_counter() - start


def together(cell: Cell) -> Hashable:
    """Every cell runs alone: its model is large enough to fill a core."""
    return cell.key()


def ticks(cell: Cell) -> int:
    """Steps and evaluations of a cell."""
    return _parts(cell)[1].steps + EVALUATIONS


def experiments(scale: Scale) -> Sequence[Experiment]:
    """Fine-tuning with either optimizer on sentences and on digits; where something is missing, a run that only says so."""
    return [
        _experiment(
            SENTENCES,
            REVIEWS[scale].replace(missing=missing()),
            MINI_LM[scale],
            SENTENCE_TRAINING[scale],
            Grid(seed=range(SENTENCE_SEEDS[scale]), optimizer=_optimizers(SENTENCE_RATES[scale])),
            sentences.prepare,
        ),
        _experiment(
            DIGITS,
            Digits(test=TEST_IMAGES[scale], missing=missing_digits()),
            VIT[scale],
            DIGIT_TRAINING[scale],
            Grid(
                seed=range(DIGIT_SEEDS[scale]),
                optimizer=_optimizers(DIGIT_RATES),
                classes=CLASS_COUNTS[scale],
            ),
            digits.prepare,
        ),
    ]


def _experiment(
    subject: Subject, task: Reviews | Digits, model: Config, train: FineTune, grid: Grid, prepare: Prepare
) -> Experiment:
    if task.missing is not None:
        _say(f"{subject.experiment} is not run: {task.missing}.")
    return Experiment(
        name=subject.experiment,
        task=task,
        model=model,
        train=train,
        grid=grid,
        run=partial(run_group, prepare),
        together=together,
        ticks=ticks,
        probe=partial(probe, prepare),
    )


def _optimizers(rates: dict[Optimizer, float]) -> dict[str, dict[str, Any]]:
    return {name.value: {"optimizer": name, "learning_rate": rate} for name, rate in rates.items()}


@cache
def _say(line: str) -> None:
    """Tell whoever runs the paper, once."""
    logging.getLogger(__name__).warning(line)


def _parts(cell: Cell) -> tuple[Reviews | Digits, FineTune]:
    return cast("Reviews | Digits", cell.task), cast(FineTune, cell.train)
