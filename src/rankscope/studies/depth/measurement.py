"""What is measured on a trained group of encoders: a record for each layer.

Columns of a layer: how far each matrix has moved, the measured rank of its ΔW, and the groups that the neurons fall into.
Columns of the whole encoder, the same in the records of all its layers: the test loss, as trained, with every ΔW
truncated, and with neurons, heads or both removed.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.ensembles import layered, one_layer
from rankscope.lab import Cell
from rankscope.lab.experiment import Scalar
from rankscope.linalg.spectrum import energy_rank
from rankscope.linalg.weights import Weights
from rankscope.measure import scores
from rankscope.measure.neurons import Order, large_neurons, magnitudes, pruned_mask, separation
from rankscope.measure.updates import update_factors, with_update_rank
from rankscope.papers.li2024.measurement import CONVERGED_LOSS, LETTERS, Columns
from rankscope.papers.li2024.training import seeds, tasks
from rankscope.studies.depth.training import models
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


class Examiner:
    """Holds a group's start and test set, and measures its trained weights."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        self.model, self.start, self.seeds = models(cells)[0], start, seeds(cells)
        self.test: PatternBatch = next(
            batches(tasks(cells), self.seeds, split="test", steps=1, batch=TEST_SAMPLES, device=device)
        )

    @property
    def layers(self) -> range:
        """1, the first, to the last."""
        return range(1, self.model.layers + 1)

    def records(self, weights: Weights) -> list[list[dict[str, Scalar]]]:
        """The records of each member, one a layer."""
        loss = self.loss(weights)
        whole = {"loss": loss, **self.truncation(weights), **self.pruning(weights)}
        rows = [whole | self.ranks(weights, layer) | self.neurons(weights, layer) for layer in self.layers]
        plain = [{name: values.double().tolist() for name, values in row.items()} for row in rows]
        return [
            [
                {
                    "layer": layer,
                    "trained": bool(loss[member] <= CONVERGED_LOSS),
                    **{name: values[member] for name, values in row.items()},
                }
                for layer, row in zip(self.layers, plain, strict=True)
            ]
            for member in range(len(self.seeds))
        ]

    def loss(self, weights: Weights) -> Float[Tensor, " member"]:
        """The mean hinge loss on the test set."""
        output = layered.forward(self.model, weights, self.test.x)
        return one_layer.hinge(output, self.test.labels).mean(-1)

    def truncation(self, weights: Weights) -> Columns:
        """The loss with every ΔW of every layer truncated."""
        factors = update_factors(self.start, weights, self.model.trained)
        return {
            f"loss_rank_{rank}": self.loss(with_update_rank(self.start, weights, factors, rank))
            for rank in (1, 2)
        }

    def ranks(self, weights: Weights, layer: int) -> Columns:
        """How far each matrix of a layer has moved, ‖ΔW‖/‖W(0)‖, and the measured rank of its ΔW, heads stacked.

        The rank is NaN for what has not moved, and both for the W_P that the last layer lacks.
        """
        columns: Columns = {}
        for kind, letter in KINDS.items():
            name = f"{kind}/{layer}"
            moved = rank = torch.full((len(self.seeds),), torch.nan)
            if name in weights:
                start = torch.linalg.matrix_norm(self.start[name]).cpu()
                values = torch.linalg.svdvals((weights[name] - self.start[name]).cpu())
                moved = torch.linalg.vector_norm(values, dim=-1) / start
                rank = energy_rank(values, ENERGY).to(moved).where(moved >= MOVED, torch.nan)
            columns |= {f"moved_{letter}": moved, f"rank_{letter}": rank}
        return columns

    def neurons(self, weights: Weights, layer: int) -> Columns:
        """The lower of two groups of ‖Δo_i‖: its share of the neurons, and how far the groups are apart."""
        size = magnitudes(weights[f"w_o/{layer}"] - self.start[f"w_o/{layer}"])
        large = large_neurons(size)
        return {
            "update_small_fraction": 1 - large.to(size.dtype).mean(-1),
            "update_separation": separation(size, large),
        }

    def pruning(self, weights: Weights) -> Columns:
        """The loss with a fraction of the neurons, of the heads, or of both removed in every layer, in three orders.

        A neuron's size is ‖o_i‖ as in the paper, a head's is ‖W_V^h‖: both are what the unit answers with.
        """
        columns: Columns = {}
        for order in ORDERS:
            for fraction in NEURON_FRACTIONS:
                few = layered.without_neurons(weights, self.gone(weights, "neurons", fraction, order))
                columns[f"loss_{order}_neurons_{fraction:g}"] = self.loss(few)
            for fraction in HEAD_FRACTIONS:
                if (fraction * self.model.heads) % 1:
                    absent = torch.full((len(self.seeds),), torch.nan)
                    columns[f"loss_{order}_heads_{fraction:g}"] = columns[
                        f"loss_{order}_both_{fraction:g}"
                    ] = absent
                    continue
                few = layered.without_heads(weights, self.gone(weights, "heads", fraction, order))
                columns[f"loss_{order}_heads_{fraction:g}"] = self.loss(few)
                few = layered.without_neurons(few, self.gone(weights, "neurons", fraction, order))
                columns[f"loss_{order}_both_{fraction:g}"] = self.loss(few)
        return columns

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
