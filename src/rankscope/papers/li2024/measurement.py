"""Every quantity of the paper, measured on a trained group, as tidy rows: which measurement, where, what was found.

In brackets stands the equation or figure that a measurement serves.
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
from rankscope.measure.neurons import Order, large_neurons, magnitudes, pruned_mask, separation, without
from rankscope.measure.updates import alignment, update_factors, with_update_rank
from rankscope.tasks.patterns import PatternBatch, Patterns, batches, frames
from rankscope.training.sgd import Trajectory

RANKS = (1, 2, 5, 10, 20)
"""Ranks of figure 1."""

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Pruning rates of figure 3B."""

TEST_SAMPLES = 512
CONVERGED_LOSS = 0.05
CONVERGED_OVER = 8
"""Converged: the training loss averaged over this many batches is below that value."""

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
        self.start = start
        self.test = test or next(
            batches(tasks, seeds, split=Split.TEST, steps=1, batch=TEST_SAMPLES, device=device)
        )
        self.relevant = self.test.relevant()
        self.mass_start = self.contributions(start)[1]["mass"]
        self.patterns = torch.stack(frames(tasks, seeds, device=device)).to(self.test.x.dtype)

    def records(self, step: int, weights: Weights) -> list[list[Record]]:
        """The rows of every member."""
        parts, found = self.contributions(weights)
        rows: list[Measured] = [
            ({MEASUREMENT: "whole"}, {**found, "mass_start": self.mass_start}),
            *self.truncation(weights),
            *self.pruning(weights, parts),
            *self.alignments(weights),
            *self.neurons(weights, parts),
        ]
        return by_member([{"step": step}] * len(self.test.x), rows)

    def contributions(self, weights: Weights) -> tuple[Tensor, Columns]:
        """What each neuron adds to the output on the test set; the loss f(Ψ) [(4)] and attention mass [figure 1B]."""
        attended = patterns.attention(weights, self.test.x)
        parts = patterns.neuron_outputs(weights, self.test.x, attended)
        return parts, {"loss": self.loss(parts.sum(-1)), "mass": attention_mass(attended, self.relevant)}

    def loss(self, output: Float[Tensor, "member sample"]) -> Float[Tensor, " member"]:
        """f(Ψ), equation (4), on the test set."""
        return patterns.hinge(output, self.test.labels).mean(-1)

    def truncation(self, weights: Weights) -> Iterator[Measured]:
        """Loss and attention mass with every update truncated [figure 1]; singular values [figure 2, remark 1]."""
        factors = update_factors(self.start, weights, TRAINED)
        for rank in RANKS:
            _, found = self.contributions(with_update_rank(self.start, weights, factors, rank))
            yield {MEASUREMENT: "truncation", "rank": rank}, found
        for name, letter in LETTERS.items():
            for place in (1, 2, 3):
                sigma = factors[name].values[:, place - 1]
                yield {MEASUREMENT: "spectrum", "matrix": letter, "place": place}, {"sigma": sigma}

    def pruning(self, weights: Weights, parts: Tensor) -> Iterator[Measured]:
        """Loss with a fraction of neurons removed, by ‖o_i‖ [figure 3B] and, the largest, by ‖Δo_i‖ as in ℒ [(15)]."""
        size, update = magnitudes(weights["w_o"]), magnitudes(weights["w_o"] - self.start["w_o"])
        orders = {
            "smallest": (size, Order.SMALLEST),
            "largest": (size, Order.LARGEST),
            "largest updates": (update, Order.LARGEST),
        }
        for name, (by, order) in orders.items():
            for fraction in FRACTIONS:
                loss = self.loss(without(parts, pruned_mask(by, fraction, order)))
                yield {MEASUREMENT: "pruning", "order": name, "fraction": fraction}, {"loss": loss}

    def alignments(self, weights: Weights) -> Iterator[Measured]:
        """The extremes of μ'ᵀΔWμ for each weight that meets patterns [(7) to (10)]."""
        for name in ("w_q", "w_k", "w_v"):
            aligned = alignment(weights[name] - self.start[name], self.patterns)
            yield {MEASUREMENT: "alignment", "matrix": LETTERS[name]}, alignment_extremes(aligned)

    def neurons(self, weights: Weights, parts: Tensor) -> Iterator[Measured]:
        """The set ℒ of neurons that grew, what they point at, and what the others are [(11) to (14)].

        ℒ is the upper of two clusters of ‖Δo_i‖. A neuron's own pattern is μ_1 if a_i > 0 and μ_2 otherwise (with
        one output vector per position the sign of their mean decides). A "≥" bounds the least of ℒ, a "≤" the greatest
        of the others. All is asked of the trained rows o_i and of their updates Δo_i.
        """
        update = weights["w_o"] - self.start["w_o"]
        large = large_neurons(magnitudes(update))
        sign = weights["a"] if weights["a"].ndim == 2 else weights["a"].mean(1)
        own = (sign <= 0).long().unsqueeze(-1)
        share = _mean(magnitudes(update), ~large) / _mean(magnitudes(update), large)
        without_small = self.loss(without(parts, ~large))
        yield {MEASUREMENT: "large set"}, {"small_share_of_large": share, "loss_without_small": without_small}
        for of, rows in (("o", weights["w_o"]), ("update", update)):
            size = magnitudes(rows)
            upper = large_neurons(size)
            yield (
                {MEASUREMENT: "neurons", "of": of},
                {
                    "small_fraction": 1 - upper.to(rows.dtype).mean(-1),
                    "separation": separation(size, upper),
                    "small_norm": size.where(~large, 0.0).amax(-1),
                },
            )
            along = (rows @ self.patterns.mT).abs()
            mine = along.gather(-1, own).squeeze(-1)
            rest = along.scatter(-1, own, 0.0).amax(-1)
            for side, chosen in (("plus", sign > 0), ("minus", sign <= 0)):
                yield (
                    {MEASUREMENT: "directions", "of": of, "sign": side},
                    {
                        "large_on_own": mine.where(large & chosen, torch.inf).amin(-1),
                        "small_on_other": rest.where(~large & chosen, 0.0).amax(-1),
                    },
                )


def alignment_extremes(aligned: Float[Tensor, "member pattern pattern"]) -> Columns:
    """The least of μ'ᵀΔWμ where theorem 1 says "≥", the greatest where it says "≤".

    Rows of `aligned` are μ', columns μ; the relevant patterns come first. A leak goes from μ to any other pattern.
    """
    itself = torch.diagonal(aligned, dim1=-2, dim2=-1)
    other = ~torch.eye(aligned.shape[-1], dtype=torch.bool, device=aligned.device)
    leak = aligned.where(other, -torch.inf)
    return {
        "relevant_self": itself[:, :2].amin(-1),
        "relevant_leak": leak[:, :, :2].amax((-1, -2)),
        "irrelevant_to_relevant": aligned[:, :2, 2:].amin((-1, -2)),
        "irrelevant_to_irrelevant": leak[:, 2:, 2:].amax((-1, -2)),
        "irrelevant_self_least": itself[:, 2:].amin(-1),
        "irrelevant_self_greatest": itself[:, 2:].amax(-1),
        "irrelevant_leak": leak[:, :, 2:].amax((-1, -2)),
    }


def course_records(trajectory: Trajectory) -> list[list[Record]]:
    """What only the whole course of a training tells: when the loss was gone, and how singular values grew."""
    rows: list[Measured] = [
        ({MEASUREMENT: "training"}, {"converged_step": converged_step(trajectory.losses)}),
        ({MEASUREMENT: "growth", "matrix": "k"}, {"least_growth": singular_value_growth(trajectory.at)}),
    ]
    members = trajectory.losses.shape[1]
    return by_member([{"step": max(trajectory.at)}] * members, rows)


def converged_step(losses: Float[Tensor, "step member"]) -> Float[Tensor, " member"]:
    """The first step around which the training loss, averaged over a few batches, is small; NaN if never."""
    window = losses.unfold(0, CONVERGED_OVER, 1).mean(-1) if len(losses) >= CONVERGED_OVER else losses[:0]
    below = window < CONVERGED_LOSS
    first = (
        below.to(losses.dtype).argmax(0) if len(below) else torch.zeros(losses.shape[1], device=losses.device)
    )
    centre = (CONVERGED_OVER + 1) / 2  # the window that starts at step 1 speaks of its middle
    return (first + centre).to(losses.dtype).where(below.any(0), torch.nan)


def singular_value_growth(at: Mapping[int, Weights]) -> Float[Tensor, " member"]:
    """The least factor by which σ₁ or σ₂ of ΔW_K changes from one kept step to the next [figure 2]."""
    steps = sorted(step for step in at if step > 0)
    values = torch.stack(
        [torch.linalg.svdvals((at[step]["w_k"] - at[0]["w_k"]).cpu())[:, :2] for step in steps]
    )
    return (values[1:] / values[:-1]).amin((0, 2))


def _mean(values: Float[Tensor, "member hidden"], chosen: Tensor) -> Float[Tensor, " member"]:
    return values.where(chosen, 0.0).sum(-1) / chosen.sum(-1)
