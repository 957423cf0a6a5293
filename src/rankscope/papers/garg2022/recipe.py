"""How garg2022's decoders are trained: Adam at one rate, under a curriculum, in pieces that can be run apart."""

from pydantic import model_validator

from rankscope.ensembles.decoder import Decoder
from rankscope.lab import Cell
from rankscope.tasks.in_context import Curriculum, InContext
from rankscope.training.adamw import AdamW
from rankscope.training.precision import Precision


class Recipe(AdamW):
    """Adam at a constant rate; without a curriculum every step has the whole task.

    pieces   steps at which a training is measured: it may end at any of them, and go on from there to the next
    """

    warmup: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    curriculum: Curriculum | None = None
    precision: Precision = Precision.FLOAT32
    pieces: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        if self.warmup or self.epoch is not None:
            raise ValueError("the rate is constant: leave warmup and epoch out.")
        if self.pieces and self.steps not in self.pieces:
            raise ValueError(f"steps={self.steps} is no end of a piece: give one of {self.pieces}.")
        return self

    def factor(self, step: int) -> float:
        """The rate is the same at every step."""
        return 1.0

    @property
    def after(self) -> int:
        """Steps of the pieces before this one."""
        return max((end for end in self.pieces if end < self.steps), default=0)

    @property
    def goes_on(self) -> bool:
        """Whether another piece comes after this one."""
        return bool(self.pieces) and self.steps < max(self.pieces)


PAPER_RECIPE = Recipe(steps=500_000, batch=64, learning_rate=1e-4, curriculum=Curriculum())
"""What the authors' program does with linear functions."""

LONG_CURRICULUM = Curriculum(points=26, more_points=5)
"""Of networks and trees, whose prompts have 101 examples."""

DecoderCell = Cell[InContext, Decoder, Recipe]
