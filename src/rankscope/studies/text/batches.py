"""What encoders on points of any law are trained and tested on: fresh draws per law and seed."""

from collections.abc import Sequence
from functools import cache, partial

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import normalize

from rankscope.core.streams import Split, stream, stream_seed
from rankscope.ensembles.encoder import Encoder
from rankscope.kernels.normals import normals
from rankscope.lab import Cell
from rankscope.papers.amsel2024.batches import DrawnThere, Pair
from rankscope.papers.amsel2024.recipe import Recipe
from rankscope.studies.text.sources import groups_of, rows_of
from rankscope.tasks.laws import (
    Empirical,
    LawNeighbors,
    Measured,
    Pool,
    Spectrum,
    draw,
    given_for,
    reduced,
    spectrum_of,
    split_rows,
)
from rankscope.tasks.neighbors import exact_answer
from rankscope.training.precision import Precision

LawCell = Cell[LawNeighbors, Encoder, Recipe]

START_SAMPLES = 4096
STREAM = "law neighbors"


@cache
def given_to(task: LawNeighbors, split: Split, seed: int) -> Pool | Spectrum | None:
    """What a law is drawn from: rows of an empirical one, the training rows' spectrum of a measured one."""
    if isinstance(task.law, Measured):
        rows = rows_for(task, Split.TRAIN, seed)
        assert rows is not None
        return spectrum_of(rows)
    return rows_for(task, split, seed)


@cache
def rows_for(task: LawNeighbors, split: Split, seed: int) -> Pool | None:
    """The rows that a law draws from: of a source, in the task's dimensions, for training or held out."""
    if not isinstance(task.law, Measured | Empirical):
        return None
    source = task.law.source
    part = partial(split_rows, rows_of(source), seed=seed, groups=groups_of(source))
    train = part(Split.TRAIN)
    return reduced(train, train if split is Split.TRAIN else part(split), task.dim)


def batch(cells: Sequence[LawCell], split: Split, step: int, device: str) -> Pair:
    """A fresh batch per member; members of one law and seed share it, whatever their rank."""
    drawn: dict[tuple[LawNeighbors, int], tuple[Tensor, Tensor]] = {}
    for cell in cells:
        if (cell.task, cell.seed) not in drawn:
            source = stream(cell.seed, STREAM, split, step, device=device)
            one = draw(cell.task, cell.train.batch, source, given_to(cell.task, split, cell.seed))
            drawn[cell.task, cell.seed] = one.points, one.answer
    each = [drawn[cell.task, cell.seed] for cell in cells]
    return torch.stack([points for points, _ in each]), torch.stack([answer for _, answer in each])


@cache
def mean_cosine(task: LawNeighbors, seed: int) -> float:
    """E⟨point, answer⟩ by simulation on what is trained on: the best multiple of the point itself."""
    one = draw(task, START_SAMPLES, stream(seed, "mean cosine"), given_to(task, Split.TRAIN, seed))
    return float((one.points * one.answer).sum(-1).mean())


class LawsThere(DrawnThere):
    """Training batches drawn on a GPU by (law, seed, step) alone, where no generator is asked and a graph counts the steps.

    Members of one law and seed share a source. Laws of one seed share their normal numbers, which are the coordinates of
    Gaussian points before they are stretched, or say by Φ which rows are drawn.
    """

    def __init__(self, cells: Sequence[LawCell], device: str) -> None:
        self.cells, self.task, self.size = cells, cells[0].task, cells[0].train.batch  # type: ignore[assignment]
        each = [(cell.task, cell.seed) for cell in cells]
        sources = sorted(dict.fromkeys(each), key=lambda one: isinstance(one[0].law, Empirical))
        keys = [stream_seed(seed, STREAM, Split.TRAIN) % 2**31 for _, seed in sources]
        self.keys = torch.tensor(keys, device=device)
        self.source = [sources.index(one) for one in each]
        given = [given_for(task, given_to(task, Split.TRAIN, seed)).float() for task, seed in sources]
        spectra, pools = ([one for one in given if one.dim() == kind] for kind in (1, 2))
        self.roots = torch.stack(spectra).sqrt().to(device) if spectra else None
        self.rows = torch.cat(pools).to(device) if pools else None
        self.counts = torch.tensor([len(pool) for pool in pools], device=device)

    def drawn(self, step: Int[Tensor, "1"]) -> Pair:
        """Points and answers of every source."""
        tokens, dim, parts = self.task.tokens, self.task.dim, []
        first = 0 if self.roots is None else len(self.roots)
        if self.roots is not None:
            gaussian = normals(self.keys[:first], step, self.size * tokens * dim)
            parts.append(
                normalize(gaussian.view(first, self.size, tokens, dim) * self.roots[:, None, None], dim=-1)
            )
        if self.rows is not None:
            below = torch.special.ndtr(normals(self.keys[first:], step, self.size * tokens))
            counts = self.counts[:, None]
            place = torch.minimum((below * counts).long(), counts - 1) + (counts.cumsum(0) - counts)
            parts.append(self.rows[place].view(len(counts), self.size, tokens, dim))
        points = torch.cat(parts)
        with Precision.FLOAT32.in_use():
            return points, exact_answer(points, points, self.task.target)
