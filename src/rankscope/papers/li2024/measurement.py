"""What figures 1 to 3 show, measured on a trained group, as tidy rows: which measurement, where, what was found.

The figure that a measurement serves is in brackets. What theorem 1 bounds is in `convergence.py`.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Cell
from rankscope.lab.tidy import MEASUREMENT, Measured, Record, by_member
from rankscope.linalg.weights import Weights
from rankscope.measure.attention_mass import attention_mass
from rankscope.measure.neurons import Order, magnitudes, pruned_mask, two_groups, without
from rankscope.measure.updates import update_factors, with_update_rank
from rankscope.tasks.patterns import PatternBatch, Patterns, batches, frames
from rankscope.training.sgd import Trajectory

RANKS = (1, 2, 5, 10, 20)
"""Ranks of figure 1."""

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Pruning rates of figure 3B."""

TEST_SAMPLES = 512
CONVERGED_LOSS = 0.05
CONVERGED_OVER = 8
"""Converged: the loss of a batch is below that value, and so is its average over this many batches."""

LIKE_FULL = 0.02
"""Loss that truncation or pruning may add and still count as doing no harm."""

LETTERS = {"w_q": "q", "w_k": "k", "w_v": "v", "w_o": "o"}

Columns = dict[str, Float[Tensor, " member"]]


class Examiner:
    """Holds a group's test set and patterns, and measures its weights at any step."""

    def __init__(
        self, cells: Sequence[Cell[Patterns]], start: Weights, device: str, test: PatternBatch | None = None
    ) -> None:
        tasks, seeds = [cell.task for cell in cells], [cell.seed for cell in cells]
        self.start, self.seeds = start, seeds
        self.test = test or next(
            batches(tasks, seeds, split=Split.TEST, steps=1, batch=TEST_SAMPLES, device=device)
        )
        self.relevant = self.test.relevant()
        self.mass_start = self.contributions(start)[1]["mass"]
        self.patterns = torch.stack(frames(tasks, seeds, device=device)).to(self.test.x.dtype)

    def records(self, steps: Sequence[int], weights: Weights) -> list[list[Record]]:
        """The rows of every member, each at a step of its own."""
        return by_member([{"step": step} for step in steps], self.rows(weights))

    def rows(self, weights: Weights) -> Iterator[Measured]:
        """Every measurement of the group."""
        parts, found = self.contributions(weights)
        yield {MEASUREMENT: "whole"}, {**found, "mass_start": self.mass_start}
        yield from self.truncation(weights, RANKS)
        yield from self.pruning(weights, parts)
        for of, rows in (("o", weights["w_o"]), ("update", weights["w_o"] - self.start["w_o"])):
            yield {MEASUREMENT: "neurons", "of": of}, two_groups(magnitudes(rows))

    def contributions(self, weights: Weights) -> tuple[Tensor, Columns]:
        """What each neuron adds to the output on the test set; the loss f(Ψ) [(4)] and attention mass [figure 1B]."""
        attended = patterns.attention(weights, self.test.x)
        parts = patterns.neuron_outputs(weights, self.test.x, attended)
        return parts, {"loss": self.loss(parts.sum(-1)), "mass": attention_mass(attended, self.relevant)}

    def loss(self, output: Float[Tensor, "member sample"]) -> Float[Tensor, " member"]:
        """f(Ψ), equation (4), on the test set."""
        return patterns.hinge(output, self.test.labels).mean(-1)

    def truncation(self, weights: Weights, ranks: Sequence[int]) -> Iterator[Measured]:
        """Loss and attention mass with every update truncated [figure 1]; singular values [figure 2, remark 1]."""
        factors = update_factors(self.start, weights, TRAINED)
        for rank in ranks:
            _, found = self.contributions(with_update_rank(self.start, weights, factors, rank))
            yield {MEASUREMENT: "truncation", "rank": rank}, found
        for name, letter in LETTERS.items():
            for place in (1, 2, 3):
                sigma = factors[name].values[:, place - 1]
                yield {MEASUREMENT: "spectrum", "matrix": letter, "place": place}, {"sigma": sigma}

    def pruning(self, weights: Weights, parts: Tensor) -> Iterator[Measured]:
        """Loss with a fraction of neurons removed, by ‖o_i‖ [figure 3B]."""
        size = magnitudes(weights["w_o"])
        for order in (Order.SMALLEST, Order.LARGEST):
            for fraction in FRACTIONS:
                loss = self.loss(without(parts, pruned_mask(size, fraction, order)))
                yield {MEASUREMENT: "pruning", "order": order.value, "fraction": fraction}, {"loss": loss}


def course_records(trajectory: Trajectory) -> list[list[Record]]:
    """What only the whole course of a training tells: when the loss was gone, and how singular values grew."""
    rows: list[Measured] = [
        ({MEASUREMENT: "training"}, {"converged_step": converged_step(trajectory.losses)}),
        ({MEASUREMENT: "growth", "matrix": "k"}, {"least_growth": singular_value_growth(trajectory.at)}),
    ]
    members = trajectory.losses.shape[1]
    return by_member([{"step": max(trajectory.at)}] * members, rows)


def converged_step(
    losses: Float[Tensor, "step member"], over: int = CONVERGED_OVER
) -> Float[Tensor, " member"]:
    """T, how many updates were made before the loss was gone; NaN if it never was.

    Gone is the loss of a batch that is below `CONVERGED_LOSS`, and so is the average of that batch and the next `over` − 1.
    """
    if len(losses) < over:
        return torch.full_like(losses[0], torch.nan)
    gone = (losses.unfold(0, over, 1).mean(-1) < CONVERGED_LOSS) & (
        losses[: 1 - over or None] < CONVERGED_LOSS
    )
    return gone.to(losses.dtype).argmax(0).to(losses.dtype).where(gone.any(0), torch.nan)


def singular_value_growth(at: Mapping[int, Weights]) -> Float[Tensor, " member"]:
    """The least factor by which σ₁ or σ₂ of ΔW_K changes from one kept step to the next [figure 2]."""
    steps = sorted(step for step in at if step > 0)
    values = torch.stack(
        [torch.linalg.svdvals((at[step]["w_k"] - at[0]["w_k"]).cpu())[:, :2] for step in steps]
    )
    return (values[1:] / values[:-1]).amin((0, 2))
