"""The learning rate over a training: linear warm-up, then a cosine down to zero, by steps or by whole epochs."""

import math


def warmup_cosine(step: int, steps: int, warmup: float) -> float:
    """The factor on the learning rate at `step` (from 0) of `steps`, the first share `warmup` of which climbs to 1.

    >>> [round(warmup_cosine(step, 10, 0.2), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.04]
    """
    climb = warmup * steps
    if step + 1 < climb:
        return (step + 1) / climb
    return 0.5 * (1 + math.cos(math.pi * max(0.0, step - climb) / (steps - climb)))


def epoch_warmup_cosine(step: int, steps: int, warmup: float, epoch: int) -> float:
    """The same where the rate changes once in `epoch` steps: it is 0 in the first epoch, and 1 in the last that climbs.

    >>> [round(epoch_warmup_cosine(step, 100, 0.3, 10), 2) for step in (0, 9, 10, 20, 30, 60, 99)]
    [0.0, 0.0, 0.5, 1.0, 1.0, 0.61, 0.05]
    """
    now, epochs = step // epoch, steps // epoch
    climb = int(warmup * epochs)
    if now < climb:
        return now / max(climb - 1, 1)
    return 0.5 * (1 + math.cos(math.pi * (now - climb) / (epochs - climb)))
