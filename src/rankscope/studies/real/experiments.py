"""Two halves of real data, fine-tuned on with their labels and with permuted ones, at three scales.

**Digits.** `digits.py` says what is learned first and what after. Kinds and classes vary apart: 2 kinds in 2 classes, and 8
kinds in 2, 4 or 8. A half has 120 images whatever the kinds, as many as two kinds allow. The optimizer is the paper's, with 80
steps at quick and 160 at paper. Of the rates tried with one seed, SGD does alike from 0.05 to 0.2.

**Sentences.** All rated sentences in 2 or 8 classes by their rating, one pass over each half by AdamW, as such models are
tuned. It is an experiment for scale paper and a GPU: 32 cells, 64 fine-tunings of 110 steps, about five minutes on an H200 by
the time of earlier fine-tunings there. Below that scale it is left out.
"""

from collections.abc import Sequence
from typing import Any

from rankscope.lab import Experiment, Grid, Scale
from rankscope.studies.real import digits, sentences
from rankscope.studies.real.assets import missing, missing_digits
from rankscope.studies.real.digits import Digits, SmallVit
from rankscope.studies.real.sentences import MiniLm, Reviews
from rankscope.studies.real.trainer import FineTuner
from rankscope.studies.real.training import FineTune, Optimizer

SEEDS = {Scale.SMOKE: 2, Scale.QUICK: 8, Scale.PAPER: 8}
LABELS: dict[str, dict[str, Any]] = {"true": {}, "permuted": {"permuted": True}}

DIGITS = {
    Scale.SMOKE: Digits(test=16, half=16),
    Scale.QUICK: Digits(test=120, half=120),
    Scale.PAPER: Digits(test=120, half=120),
}
VIT = {Scale.SMOKE: SmallVit(dim=16, layers=1, hidden=32), Scale.QUICK: SmallVit(), Scale.PAPER: SmallVit()}
DIGIT_TRAINING = {
    Scale.SMOKE: FineTune(steps=4, batch=8, pretraining=4),
    Scale.QUICK: FineTune(steps=80, batch=32, pretraining=160),
    Scale.PAPER: FineTune(steps=160, batch=32, pretraining=160),
}
DIGIT_RATES = {Optimizer.SGD: 0.1}
KINDS_AND_CLASSES = {
    Scale.SMOKE: ((2, 2), (8, 2), (8, 8)),
    Scale.QUICK: ((2, 2), (8, 2), (8, 8)),
    Scale.PAPER: ((2, 2), (8, 2), (8, 4), (8, 8)),
}

REVIEWS = Reviews(longest=128, test=1024, half=3520)
SENTENCE_TRAINING = FineTune(steps=110, batch=32)
SENTENCE_RATES = {Optimizer.ADAMW: 1e-4}
RATING_CLASSES = (2, 8)


def experiments(scale: Scale) -> Sequence[Experiment]:
    """Fine-tuning on digits and on sentences."""
    seeds = range(SEEDS[scale])
    settings = {
        f"{kinds} in {classes}": {"kinds": kinds, "classes": classes}
        for kinds, classes in KINDS_AND_CLASSES[scale]
    }
    return [
        Experiment(
            "li2024/digits",
            DIGITS[scale],
            VIT[scale],
            DIGIT_TRAINING[scale],
            Grid(seed=seeds, optimizer=_optimizers(DIGIT_RATES), setting=settings, labels=LABELS),
            FineTuner(digits.prepare),
            missing_digits,
        ),
        Experiment(
            "li2024/real",
            REVIEWS,
            MiniLm(),
            SENTENCE_TRAINING,
            Grid(seed=seeds, optimizer=_optimizers(SENTENCE_RATES), classes=RATING_CLASSES, labels=LABELS),
            FineTuner(sentences.prepare),
            missing if scale is Scale.PAPER else _left_to_paper,
        ),
    ]


def _optimizers(rates: dict[Optimizer, float]) -> dict[str, dict[str, Any]]:
    return {name.value: {"optimizer": name, "learning_rate": rate} for name, rate in rates.items()}


def _left_to_paper() -> str | None:
    """What the sentences lack; below scale paper, the time."""
    return missing() or "it takes a GPU: run it at scale paper on cuda, or put tables of it in results/"
