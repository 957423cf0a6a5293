"""What encoders are trained and tested on: a batch per member, by its seed and its place in the stream, which may repeat."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from rankscope import kernels
from rankscope.core.streams import Split, stream, stream_seed
from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Encoder, Program
from rankscope.kernels.normals import normals
from rankscope.kernels.small_attention import token_first
from rankscope.papers.amsel2024.recipe import EncoderCell
from rankscope.tasks.neighbors import exact_answer, sample
from rankscope.training.precision import Precision

Arranged = tuple[Float[Tensor, "member dim position"], Float[Tensor, "member dim position"]]
"""Points and answers as the program wants them."""

Pair = tuple[Float[Tensor, "member sample token dim"], Float[Tensor, "member sample token dim"]]
"""Points and answers."""

ENDLESS = 2**31 - 1
"""More steps than a training has: so many distinct batches are a fresh one at every step."""


def batch(cells: Sequence[EncoderCell], split: Split, step: int, *, device: str) -> Pair:
    """A batch per member, from its seed's stream of the split; members of one seed share it, whatever their rank.

    In training a member with a few distinct batches gets the one whose turn it is.
    """
    drawn: dict[tuple[int, int], Pair] = {}
    places = [step % _distinct(cell) if split is Split.TRAIN else step for cell in cells]
    for cell, place in zip(cells, places, strict=True):
        if (cell.seed, place) not in drawn:
            source = stream(cell.seed, "neighbors", split, place, device=device)
            one = sample(cell.task, cell.train.batch, source)
            drawn[cell.seed, place] = one.points, one.answer
    each = [drawn[cell.seed, place] for cell, place in zip(cells, places, strict=True)]
    return torch.stack([points for points, _ in each]), torch.stack([answer for _, answer in each])


def arranged(stack: Sequence[Encoder], pair: Pair, program: Program) -> Arranged:
    """Both arrays of a batch as the program wants them."""
    points, answers = pair
    return stacked_encoder.arrange(stack, points, program), stacked_encoder.arrange(stack, answers, program)


class DrawnThere:
    """Training batches drawn on a GPU by (seed, place) alone, without a generator, so that a graph can count the steps.

    Members of one seed and one number of distinct batches share a source.
    """

    def __init__(self, cells: Sequence[EncoderCell], device: str) -> None:
        self.cells, self.task, self.size = cells, cells[0].task, cells[0].train.batch
        each = [(cell.seed, _distinct(cell)) for cell in cells]
        sources = sorted(set(each))
        keys = [stream_seed(seed, "neighbors", Split.TRAIN) % 2**31 for seed, _ in sources]
        self.keys = torch.tensor(keys, device=device)
        self.distinct = torch.tensor([distinct for _, distinct in sources], device=device)
        self.source = [sources.index(one) for one in each]

    def drawn(self, step: Int[Tensor, "1"]) -> Pair:
        """Points and answers of every source."""
        shape = (len(self.keys), self.size, self.task.tokens, self.task.dim)
        gaussian = normals(self.keys, step % self.distinct, math.prod(shape[1:])).view(shape)
        points = functional.normalize(gaussian, dim=-1)
        with Precision.FLOAT32.in_use():
            return points, exact_answer(points, points, self.task.target)

    def arranged(self, program: Program) -> Callable[[Int[Tensor, "1"]], Arranged]:
        """Batches by step, as the program wants them: each source is laid out once for every order that a member wants."""
        wanted = [token_first(program.way, cell.model.rank) for cell in self.cells]
        orders = sorted(set(wanted))
        rows = [
            source + len(self.keys) * orders.index(order)
            for source, order in zip(self.source, wanted, strict=True)
        ]
        member = torch.tensor(rows, device=self.keys.device)

        def for_members(
            array: Float[Tensor, "source sample token dim"],
        ) -> Float[Tensor, "member dim position"]:
            laid = [array.permute(0, 3, 2, 1) if first else array.permute(0, 3, 1, 2) for first in orders]
            return torch.cat([one.flatten(2) for one in laid])[member]

        def batch_at(step: Int[Tensor, "1"]) -> Arranged:
            points, answers = self.drawn(step)
            return for_members(points.to(program.dtype)), for_members(answers)

        return batch_at


def trained_on(cells: Sequence[EncoderCell], device: str) -> Callable[[int], Pair]:
    """The batch that every member was trained on at a step, as training on that device drew it."""
    if not kernels.usable(device):
        return lambda step: batch(cells, Split.TRAIN, step, device=device)
    there = DrawnThere(cells, device)

    def at(step: int) -> Pair:
        points, answers = there.drawn(torch.tensor([step], device=device))
        return points[there.source], answers[there.source]

    return at


def _distinct(cell: EncoderCell) -> int:
    return cell.train.distinct_batches or ENDLESS
