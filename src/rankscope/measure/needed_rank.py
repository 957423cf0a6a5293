"""The least rank of an update that keeps most of what it gained, and how far the examples at hand decide it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import stream

RESAMPLES = 400


class Needed(NamedTuple):
    """The least rank; its mean on a log₂ scale and its 95% interval over resampled examples. NaN where nothing was gained."""

    rank: float
    log2: float
    low: float
    high: float


def needed_rank(
    losses: Float[Tensor, "rank example"], ranks: Sequence[int], share: float, resamples: int = RESAMPLES
) -> Needed:
    """The least of `ranks` that keeps a `share` of the gain, losses[0] − losses[−1] in the mean over examples.

    The first rank is 0, the last one all of the update. The bootstrap is paired: a resample has the
    same examples at every rank.
    """
    count = losses.shape[1]
    draws = torch.randint(count, (resamples, count), generator=stream(0, "resampled examples"))
    weight = torch.zeros(resamples + 1, count, dtype=torch.float64)
    weight[1:].scatter_add_(1, draws, torch.ones(draws.shape, dtype=torch.float64))
    weight[0] = 1.0
    mean = weight @ losses.double().cpu().T
    gained = mean[:, :1] - mean
    enough = (gained >= share * gained[:, -1:]) & (gained[:, -1:] > 0)
    least = torch.tensor(ranks, dtype=torch.float64)[enough.int().argmax(1)]
    least = torch.where(enough.any(1), least, torch.nan)
    if least[0].isnan():
        return Needed(*[float("nan")] * 4)
    resampled = least[1:][~least[1:].isnan()]
    low, high = resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Needed(float(least[0]), float(resampled.log2().mean()), low, high)
