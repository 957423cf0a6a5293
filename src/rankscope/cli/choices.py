"""What options offer, as the library has it: written here again, so that help and completion import nothing heavy."""

from enum import StrEnum


class ScaleChoice(StrEnum):
    """`rankscope.lab.Scale`."""

    SMOKE = "smoke"
    QUICK = "quick"
    PAPER = "paper"


class VerdictChoice(StrEnum):
    """`rankscope.lab.Verdict`."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class OriginChoice(StrEnum):
    """The names of `rankscope.lab.Origin`."""

    PAPER = "paper"
    READING = "reading"
    BEYOND = "beyond"
