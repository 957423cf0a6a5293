"""How much of a paper is run."""

from enum import StrEnum


class Scale(StrEnum):
    """How much is run: seconds, minutes on two cores, or the paper's own sizes."""

    SMOKE = "smoke"
    QUICK = "quick"
    PAPER = "paper"
