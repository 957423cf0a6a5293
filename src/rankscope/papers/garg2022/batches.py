"""What decoders are trained and tested on: prompts per member, by its seed and its place in the stream."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.core.streams import Split, stream_seed
from rankscope.kernels.normals import normals
from rankscope.papers.garg2022.recipe import DecoderCell
from rankscope.tasks.in_context import InContext, Prompts, interleaved, normals_needed, prompts, sample
from rankscope.training.precision import Precision

Batch = tuple[Float[Tensor, "member sample token dim"], Float[Tensor, "member sample point"]]
"""Tokens, and the outputs that are to be predicted at those of the inputs."""


def batch(cells: Sequence[DecoderCell], task: InContext, split: Split, step: int, device: str) -> Batch:
    """Fresh prompts of a stage's task; members of one seed share them, whatever their heads."""
    drawn = {cell.seed: sample(task, cell.train.batch, (cell.seed, split, step)) for cell in cells}
    laid = {seed: _laid(one) for seed, one in drawn.items()}
    tokens, outputs = zip(*(laid[cell.seed] for cell in cells), strict=True)
    return torch.stack(tokens).to(device), torch.stack(outputs).to(device)


class DrawnThere:
    """The same for training on a GPU, from normals by (seed, step) alone: no generator is asked, a graph counts the steps."""

    def __init__(self, cells: Sequence[DecoderCell], task: InContext, device: str) -> None:
        self.task, self.size = task, cells[0].train.batch
        seeds = sorted({cell.seed for cell in cells})
        keys = [stream_seed(seed, "in context", Split.TRAIN) % 2**31 for seed in seeds]
        self.keys = torch.tensor(keys, device=device)
        self.source = torch.tensor([seeds.index(cell.seed) for cell in cells], device=device)

    def __call__(self, step: Int[Tensor, "1"]) -> Batch:
        """The batch of a step."""
        each = normals_needed(self.task)
        numbers = normals(self.keys, step, self.size * each).view(len(self.keys), self.size, each)
        with Precision.FLOAT32.in_use():
            tokens, outputs = _laid(prompts(self.task, numbers))
        return tokens[self.source], outputs[self.source]


def _laid(one: Prompts) -> Batch:
    return interleaved(one.xs, one.ys), one.ys
