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


class RoundingChoice(StrEnum):
    """`rankscope.scope.updates.BaseRounding`."""

    AUTO = "auto"
    COUNTED = "counted"
    EXACT = "exact"


class ProfileChoice(StrEnum):
    """`rankscope.scope.fates.Profile`."""

    EXACT = "exact"
    PORTABLE = "portable"


ACCEPTED = (
    "Accepted: plain text (the model's folder must hold its tokenizer), .json with lists of token ids, or "
    ".safetensors with the model's inputs by name, such as input_ids (rows × tokens) and labels"
)
RULES = "energy@SHARE (such as energy@0.95), signal, gavish-donoho, rank=N, budget=PARAMETERS, full"
QUERIES = 1000
