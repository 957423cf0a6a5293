"""A real model on real sentences and a small one on real digits, at three scales.

**Sentences.** Quick takes a part of the data, the sentences of at most 14 tokens, and one pass over 768 of them; paper takes
all of them and three passes. The paper trains with SGD, practice with AdamW: both are run, for ΔW is what the optimizer
makes of the gradients. Of a few learning rates tried at quick, SGD jumps from 0.1 on, and AdamW does alike from 1e-4 to 5e-4.
The longer training of paper has lower ones: SGD at 0.05 loses again what it learned (after 160 steps), at 0.02 it does not.

**Digits.** `digits.py` says what is learned first and what after. Quick has 80 steps of 32 images, two passes over them, and
2 or 8 classes; paper has 800, and 4 classes as well. Of the rates tried with one seed, SGD does alike from 0.05 to 0.2, AdamW
from 5e-4 to 2e-3.
"""

from collections.abc import Sequence
from typing import Any

from rankscope.lab import Experiment, Grid, Scale
from rankscope.studies.real import digits, sentences
from rankscope.studies.real.assets import missing, missing_digits
from rankscope.studies.real.digits import Digits, SmallVit
from rankscope.studies.real.sentences import MiniLm, Reviews
from rankscope.studies.real.subjects import DIGITS, SENTENCES
from rankscope.studies.real.trainer import FineTuner
from rankscope.studies.real.training import FineTune, Optimizer

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


def experiments(scale: Scale) -> Sequence[Experiment]:
    """Fine-tuning with either optimizer on sentences and on digits."""
    return [
        Experiment(
            SENTENCES.experiment,
            REVIEWS[scale],
            MINI_LM[scale],
            SENTENCE_TRAINING[scale],
            Grid(seed=range(SENTENCE_SEEDS[scale]), optimizer=_optimizers(SENTENCE_RATES[scale])),
            FineTuner(sentences.prepare),
            missing,
        ),
        Experiment(
            DIGITS.experiment,
            Digits(test=TEST_IMAGES[scale]),
            VIT[scale],
            DIGIT_TRAINING[scale],
            Grid(
                seed=range(DIGIT_SEEDS[scale]),
                optimizer=_optimizers(DIGIT_RATES),
                classes=CLASS_COUNTS[scale],
            ),
            FineTuner(digits.prepare),
            missing_digits,
        ),
    ]


def _optimizers(rates: dict[Optimizer, float]) -> dict[str, dict[str, Any]]:
    return {name.value: {"optimizer": name, "learning_rate": rate} for name, rate in rates.items()}
