"""The same task on encoders of several layers and heads: what survives of the theorem."""

from collections.abc import Sequence

from rankscope.lab import Claim, Experiment, Scale
from rankscope.lab.figure import Figure
from rankscope.lab.paper import Results

CLAIMS: tuple[Claim, ...] = ()


def experiments(scale: Scale) -> Sequence[Experiment]:
    """None yet."""
    return []


def figures(results: Results) -> Sequence[Figure]:
    """None yet."""
    return []
