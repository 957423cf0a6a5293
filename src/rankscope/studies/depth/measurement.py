"""What is measured on a trained group of encoders, as tidy rows.

Of every matrix of every layer: how far it has moved, and the measured rank of its ΔW. Of every layer: the groups that the
neurons fall into. Of the whole encoder: the test loss as trained, with every ΔW truncated, and with neurons, heads or both
removed.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.core.streams import Split, stream
from rankscope.ensembles import layered, patterns
from rankscope.lab import Cell
from rankscope.lab.tidy import MEASUREMENT, WHOLE, Measured, Record, by_member
from rankscope.linalg.spectrum import energy_rank
from rankscope.linalg.weights import Weights
from rankscope.measure import scores
from rankscope.measure.neurons import Order, magnitudes, pruned_mask, two_groups
from rankscope.measure.updates import update_factors, with_update_rank
from rankscope.papers.li2024.measurement import CONVERGED_LOSS, LETTERS
from rankscope.tasks.patterns import PatternBatch, batches

KINDS = {**LETTERS, "w_p": "p"}
ENERGY = 0.95
"""Share of ‖ΔW‖² that the measured rank must hold."""

MOVED = 1e-6
"""An update below this share of its start is lost in the rounding of float32: it has no rank to speak of."""

NEURON_FRACTIONS = (0.2, 0.4, 0.6)
HEAD_FRACTIONS = (0.25, 0.5)
"""Fractions removed in every layer; those of heads where they are whole heads."""

ORDERS = ("smallest", "random", "largest")
TEST_SAMPLES = 128


def measured(cells: Sequence[Cell], start: Weights, end: Weights, device: str) -> list[list[Record]]:
    """The records of each member of a group."""
    return DepthExaminer(cells, start, device).records(end)


class HeldOut:
    """Holds a group's start and test set."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        self.model, self.start = cells[0].model, start
        self.tasks, self.seeds = [cell.task for cell in cells], [cell.seed for cell in cells]
        self.test: PatternBatch = next(
            batches(self.tasks, self.seeds, split=Split.TEST, steps=1, batch=TEST_SAMPLES, device=device)
        )

    def loss(self, weights: Weights) -> Float[Tensor, " member"]:
        """The mean hinge loss on the test set."""
        output = layered.forward(self.model, weights, self.test.x)
        return patterns.hinge(output, self.test.labels).mean(-1)

    def recorded(self, loss: Float[Tensor, " member"], rows: Iterable[Measured]) -> list[list[Record]]:
        """The records of each member, the first of the whole encoder; each says whether the encoder trained."""
        members: list[Record] = [{"trained": bool(one <= CONVERGED_LOSS)} for one in loss]
        return by_member(members, [({MEASUREMENT: WHOLE}, {"loss": loss}), *rows])


class DepthExaminer(HeldOut):
    """Measures a group's trained weights."""

    @property
    def layers(self) -> range:
        """1, the first, to the last."""
        return range(1, self.model.layers + 1)

    def records(self, weights: Weights) -> list[list[Record]]:
        """The records of each member."""
        rows = [
            *self.truncation(weights),
            *self.pruning(weights),
            *(row for layer in self.layers for row in self.ranks(weights, layer)),
            *(self.neurons(weights, layer) for layer in self.layers),
        ]
        return self.recorded(self.loss(weights), rows)

    def truncation(self, weights: Weights) -> Iterator[Measured]:
        """The loss with every ΔW of every layer truncated."""
        factors = update_factors(self.start, weights, self.model.trained)
        for rank in (1, 2):
            loss = self.loss(with_update_rank(self.start, weights, factors, rank))
            yield {MEASUREMENT: "truncation", "rank": rank}, {"loss": loss}

    def ranks(self, weights: Weights, layer: int) -> Iterator[Measured]:
        """How far each matrix of a layer has moved, ‖ΔW‖/‖W(0)‖, and the measured rank of its ΔW, heads stacked.

        The rank is NaN for what has not moved. The last layer has no W_P.
        """
        for kind, letter in KINDS.items():
            name = f"{kind}/{layer}"
            if name in weights:
                start = torch.linalg.matrix_norm(self.start[name]).cpu()
                values = torch.linalg.svdvals((weights[name] - self.start[name]).cpu())
                moved = torch.linalg.vector_norm(values, dim=-1) / start
                rank = energy_rank(values, ENERGY).to(moved).where(moved >= MOVED, torch.nan)
                yield (
                    {MEASUREMENT: "update", "layer": layer, "matrix": letter},
                    {"moved": moved, "energy_rank": rank},
                )

    def neurons(self, weights: Weights, layer: int) -> Measured:
        """The lower of two groups of ‖Δo_i‖: its share of the neurons, and how far the groups are apart."""
        size = magnitudes(weights[f"w_o/{layer}"] - self.start[f"w_o/{layer}"])
        return {MEASUREMENT: "neurons", "layer": layer}, two_groups(size)

    def pruning(self, weights: Weights) -> Iterator[Measured]:
        """The loss with a fraction of the neurons, of the heads, or of both removed in every layer, in three orders.

        A neuron's size is ‖o_i‖ as in the paper, a head's is ‖W_V^h‖: both are what the unit answers with.
        """
        for order in ORDERS:
            for fraction in NEURON_FRACTIONS:
                few = layered.without_neurons(weights, self.gone(weights, "neurons", fraction, order))
                yield self._pruned("neurons", order, fraction, few)
            for fraction in HEAD_FRACTIONS:
                if (fraction * self.model.heads) % 1 == 0:
                    few = layered.without_heads(weights, self.gone(weights, "heads", fraction, order))
                    yield self._pruned("heads", order, fraction, few)
                    few = layered.without_neurons(few, self.gone(weights, "neurons", fraction, order))
                    yield self._pruned("both", order, fraction, few)

    def _pruned(self, units: str, order: str, fraction: float, few: Weights) -> Measured:
        at: Record = {MEASUREMENT: "pruning", "units": units, "order": order, "fraction": fraction}
        return at, {"loss": self.loss(few)}

    def gone(
        self, weights: Weights, units: str, fraction: float, order: str
    ) -> dict[int, Bool[Tensor, "member unit"]]:
        """Which units go, layer by layer."""
        masks, model = {}, self.model
        for layer in self.layers:
            name, count = (
                (f"w_o/{layer}", model.hidden) if units == "neurons" else (f"w_v/{layer}", model.heads)
            )
            size = magnitudes(scores.units(weights[name], count))
            if order == "random":
                drawn = [
                    torch.rand(size.shape[1], generator=stream(seed, "order", units, layer))
                    for seed in self.seeds
                ]
                size = torch.stack(drawn).to(size)
            masks[layer] = pruned_mask(
                size, fraction, Order.LARGEST if order == "largest" else Order.SMALLEST
            )
        return masks
