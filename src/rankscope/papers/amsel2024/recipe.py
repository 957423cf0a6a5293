"""How amsel2024's encoders are trained: the talk's recipe, the authors' program, and ours."""

from enum import Enum

from pydantic import Field

from rankscope.ensembles.encoder import Encoder
from rankscope.lab import Cell
from rankscope.tasks.neighbors import Neighbors
from rankscope.training.adamw import AdamW
from rankscope.training.precision import Precision


class Start(Enum):
    """Where the last norm's scalar, the size and sign of every output, starts, and what else is not PyTorch's.

    PYTORCH            at 1, as every other norm; the heads attend to all points alike
    COPIES             the same, and every layer starts as a copy of the first, as in torch's TransformerEncoder
    TOWARDS_ANSWER     at E⟨point, answer⟩ < 0, the best multiple of the point itself
    LAST_LAYER         as above; in the last of several layers attention adds to a token one of its own length
    HEADS_APART        as above; each head prefers points of its own, with scores of standard deviation `APART`
    """

    PYTORCH = "pytorch"
    COPIES = "copies"
    TOWARDS_ANSWER = "towards answer"
    LAST_LAYER = "last layer"
    HEADS_APART = "heads apart"


APART = 2.0
"""The standard deviation of a score at the start, where heads start apart."""


class Recipe(AdamW):
    """AdamW at learning_rate · layers^(−depth_power), from one of the starts.

    distinct_batches   so many batches are drawn, and trained on in the same order again and again; None draws a fresh
                       one at every step
    """

    depth_power: float = Field(default=0.0, ge=0)
    start: Start
    precision: Precision = Precision.FLOAT32
    distinct_batches: int | None = Field(default=None, ge=1)


PAPER_RECIPE = Recipe(steps=100_000, batch=256, learning_rate=0.01, warmup=0.05, start=Start.PYTORCH)
"""What the talk says: one learning rate for every depth, PyTorch's initial weights."""

AUTHORS_RECIPE = PAPER_RECIPE.replace(start=Start.COPIES, distinct_batches=100, epoch=100)
"""What the authors' program does: the same 100 batches in every epoch, with one learning rate per epoch."""

OUR_RECIPE = PAPER_RECIPE.replace(warmup=0.1, depth_power=0.5, start=Start.LAST_LAYER)
"""Trains every cell: see `experiments` for what was tried and measured."""


EncoderCell = Cell[Neighbors, Encoder, Recipe]
