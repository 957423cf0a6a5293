"""What theorem 1 and corollary 1 bound, measured at T, when the loss is gone, as tidy rows.

The equation that a measurement serves is in brackets.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.lab.tidy import MEASUREMENT, Measured
from rankscope.linalg.weights import Weights
from rankscope.measure.neurons import Order, magnitudes, pruned_mask, without
from rankscope.measure.updates import alignment
from rankscope.papers.li2024.measurement import LETTERS, Examiner

PRUNED = (0.1, 0.2, 0.4)
"""Fractions R of all neurons that are taken out of ℒ [(15)]."""

REACHED = 1.0
"""A neuron belongs to ℒ where √m |o_i·μ| is at least this along its own pattern μ, for the row and for its update."""

Columns = dict[str, Float[Tensor, " member"]]


class ConvergenceExaminer(Examiner):
    """Measures at T what the theorem's inequalities are about."""

    def rows(self, weights: Weights) -> Iterator[Measured]:
        """Every measurement of the group."""
        parts, found = self.contributions(weights)
        yield {MEASUREMENT: "whole"}, {**found, "mass_start": self.mass_start}
        yield from self.truncation(weights, (1, 2))
        for name in ("w_q", "w_k", "w_v"):
            for pair, summary in pair_summaries(alignment(weights[name] - self.start[name], self.patterns)):
                yield {MEASUREMENT: "alignment", "matrix": LETTERS[name], "pair": pair}, summary
        yield from self.neurons(weights, parts, found["loss"])

    def neurons(self, weights: Weights, parts: Tensor, whole: Float[Tensor, " member"]) -> Iterator[Measured]:
        """A set ℒ, how the neurons outside it are [(11) to (13)], and what pruning outside and inside costs [(14), (15)].

        The theorem says that such a set exists: here are the neurons that reach `REACHED`/√m along their own pattern, which
        is μ_1 if a_i > 0 and μ_2 otherwise. Its lower bounds hold by construction; how large it is and what is outside
        is measured. What pruning costs is what it adds to the loss at T.
        """
        rows = {"o": weights["w_o"], "update": weights["w_o"] - self.start["w_o"]}
        root = weights["w_o"].shape[1] ** 0.5
        own = (weights["a"] <= 0).long().unsqueeze(-1)
        along = {of: (row @ self.patterns.mT).abs() for of, row in rows.items()}
        reach = torch.minimum(*(size.gather(-1, own).squeeze(-1) for size in along.values()))
        inside = root * reach >= REACHED
        added = self.loss(without(parts, ~inside)) - whole
        yield {MEASUREMENT: "set"}, {"share": inside.to(reach.dtype).mean(-1), "added_without_others": added}
        for of, row in rows.items():
            other = along[of].scatter(-1, own, 0.0).amax(-1)
            for sign, side in (("plus", weights["a"] > 0), ("minus", weights["a"] <= 0)):
                yield (
                    {MEASUREMENT: "outside", "of": of, "sign": sign},
                    {
                        "on_other": root * other.where(~inside & side, 0.0).amax(-1),
                        "norm": root * magnitudes(row).where(~inside & side, 0.0).amax(-1),
                    },
                )
        for order in Order:
            for fraction in PRUNED:
                gone = self._taken(inside, reach, fraction, order)
                cost = (self.loss(without(parts, gone)) - whole).where(
                    inside.float().mean(-1) >= fraction, torch.nan
                )
                yield {MEASUREMENT: "pruning", "order": order.value, "fraction": fraction}, {"added": cost}

    def _taken(
        self,
        inside: Bool[Tensor, "member hidden"],
        reach: Float[Tensor, "member hidden"],
        fraction: float,
        order: Order,
    ) -> Bool[Tensor, "member hidden"]:
        """A fraction of all neurons, taken from the set: those that reach farthest, least far, or any."""
        if order is Order.LARGEST:
            return pruned_mask(reach.where(inside, -1.0), fraction, order)
        chance = torch.stack(
            [torch.rand(reach.shape[-1], generator=stream(seed, "prune")) for seed in self.seeds]
        )
        by = chance.to(reach) if order is Order.RANDOM else reach
        return pruned_mask(by.where(inside, torch.inf), fraction, Order.SMALLEST)


def pair_summaries(aligned: Float[Tensor, "member pattern pattern"]) -> Iterator[tuple[str, Columns]]:
    """Least, mean and greatest of μ'ᵀΔWμ over the pairs that theorem 1 tells apart [(7) to (10)].

    Rows of `aligned` are μ', columns μ, and a pair is named from μ to μ'; the relevant patterns come first.
    """
    itself = torch.diagonal(aligned, dim1=-2, dim2=-1)
    between = ~torch.eye(aligned.shape[-1] - 2, dtype=torch.bool, device=aligned.device)
    groups = {
        "relevant to itself": itself[:, :2],
        "relevant to relevant": torch.stack([aligned[:, 0, 1], aligned[:, 1, 0]], -1),
        "relevant to irrelevant": aligned[:, 2:, :2].flatten(1),
        "irrelevant to relevant": aligned[:, :2, 2:].flatten(1),
        "irrelevant to itself": itself[:, 2:],
        "irrelevant to irrelevant": aligned[:, 2:, 2:][:, between],
    }
    for pair, values in groups.items():
        yield pair, {"least": values.amin(-1), "mean": values.mean(-1), "greatest": values.amax(-1)}
