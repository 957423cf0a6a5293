"""What random weights use of their rank: without it, "at the ceiling" says nothing of an untrained model."""

from functools import cache

import torch

from rankscope.checkpoints import Checkpoint
from rankscope.core.streams import stream
from rankscope.linalg.factored import Factored

DRAWS = 4
"""Random heads per shape whose shares are averaged."""


@cache
def random_share(dim: int, rank: int) -> float:
    """The mean of effective over nominal rank of A·B with independent Gaussian entries, A dim × rank, B rank × dim.

    >>> random_share(64, 1)
    1.0
    """
    draws = stream(0, "random head", dim, rank)
    left = torch.randn(DRAWS, dim, rank, generator=draws, dtype=torch.float64)
    right = torch.randn(DRAWS, rank, dim, generator=draws, dtype=torch.float64)
    return float(Factored(left, right).effective_rank.mean()) / min(rank, dim)


def baseline_sentences(checkpoint: Checkpoint) -> list[str]:
    """For every shape of a head in a checkpoint, how much of its rank it would use at random."""
    shapes = dict.fromkeys((block.dim, block.head_dim) for block in checkpoint.attention)
    return [
        f"Random heads of rank {rank} in dimension {dim} use {random_share(dim, rank):.0%}: "
        "a use near that may be untrained."
        for dim, rank in shapes
    ]
