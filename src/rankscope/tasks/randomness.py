"""Where a batch's randomness comes from: a generator at hand, or a place in a named stream."""

import torch

from rankscope.core import InputError
from rankscope.core.streams import Split, stream

Randomness = torch.Generator | tuple[int, Split, int]
"""A generator, or (seed, split, step): the same batch for the same three, whatever was drawn before."""


def generator_of(source: Randomness, name: str) -> torch.Generator:
    """The generator itself, or the one at (seed, split, step) of the stream `name`, on the CPU."""
    if isinstance(source, torch.Generator):
        return source
    seed, split, step = source
    if step < 0:
        raise InputError(f"step={step}: steps of a stream count from 0.")
    return stream(seed, name, split, step)
