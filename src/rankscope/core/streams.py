"""Randomness as a named argument: a stream is fixed by a seed and a path of names, by nothing else."""

import hashlib
from enum import Enum

import torch


class Split(Enum):
    """What samples are for. It is part of the name of their stream, so that what is for one is never for another.

    TRAIN          batches that are drawn anew for every step of a training
    TRAINING_SET   samples that are drawn once, and trained on again and again
    TEST           samples that a trained model is measured on
    CALIBRATION    samples that a measurement takes its own numbers from before it sees the test
    """

    TRAIN = "train"
    TRAINING_SET = "samples"
    TEST = "test"
    CALIBRATION = "calibration"


Name = str | int | Split


def stream_seed(seed: int, *names: Name) -> int:
    """A 63-bit seed for the stream `names` of `seed`: independent for every path, equal everywhere.

    >>> stream_seed(0, "tokens", 1) == stream_seed(0, "tokens", 1)
    True
    >>> stream_seed(0, "tokens", 1) == stream_seed(0, "tokens", 2)
    False
    """
    path = repr((int(seed), *_path(names))).encode()
    return int.from_bytes(hashlib.sha256(path).digest()[:8], "big") >> 1


def stream(seed: int, *names: Name, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the start of the stream `names` of `seed`."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *names))


def _path(names: tuple[Name, ...]) -> tuple[str | int, ...]:
    """The names as they are hashed: a split is a name of its own if it is the first, and else is added to the name before it.

    TRAIN adds nothing: the streams of training had their names before there were splits.
    """
    path: list[str | int] = []
    for name in names:
        if not isinstance(name, Split):
            path.append(name)
        elif not path:
            path.append(name.value)
        elif name is not Split.TRAIN:
            path[-1] = f"{path[-1]} {name.value}"
    return tuple(path)
