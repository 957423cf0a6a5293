"""The test loss against the fraction of units removed, for every kind of unit and every score, as tidy rows.

A neuron is its row of W_O, a head its rows of W_V. In every layer the same fraction of units goes, those of the least
score first. Scores that need data take it from samples of their own, which the test does not see.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import Split, stream
from rankscope.ensembles import layered
from rankscope.lab import Cell
from rankscope.lab.tidy import MEASUREMENT, Measured, Record
from rankscope.linalg.weights import Weights
from rankscope.measure import scores
from rankscope.measure.neurons import Order, magnitudes, pruned_mask
from rankscope.papers.li2024.measurement import LIKE_FULL
from rankscope.studies.depth.measurement import HeldOut
from rankscope.tasks.patterns import PatternBatch, batches

NEURON_FRACTIONS = tuple(round(0.05 * step, 2) for step in range(1, 17))
CALIBRATION_SAMPLES = 256


class Units(StrEnum):
    """What is removed."""

    NEURONS = "neurons"
    HEADS = "heads"


class Score(StrEnum):
    """By what; `TAYLOR` takes the hinge loss, `TAYLOR_OUTPUT` the mean of −y F(X), whose gradient does not vanish."""

    MAGNITUDE = "magnitude"
    MOVEMENT = "movement"
    ACTIVATION = "activation"
    TAYLOR = "taylor"
    TAYLOR_OUTPUT = "taylor of the output"
    RANDOM = "random"
    LARGEST = "magnitude, largest first"


def measured(cells: Sequence[Cell], start: Weights, end: Weights, device: str) -> list[list[Record]]:
    """The records of each member of a group."""
    return PruningExaminer(cells, start, device).records(end)


class PruningExaminer(HeldOut):
    """Holds a calibration set as well, and prunes a group's trained weights."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        super().__init__(cells, start, device)
        self.calibration: PatternBatch = next(
            batches(
                self.tasks,
                self.seeds,
                split=Split.CALIBRATION,
                steps=1,
                batch=CALIBRATION_SAMPLES,
                device=device,
            )
        )

    def records(self, weights: Weights) -> list[list[Record]]:
        """The records of each member."""
        loss = self.loss(weights)
        return self.recorded(loss, self.pruning(weights, loss))

    def pruning(self, weights: Weights, loss: Float[Tensor, " member"]) -> Iterator[Measured]:
        """By every score the loss without a fraction of the units, and how far it stays flat."""
        for units in Units if self.model.heads > 1 else (Units.NEURONS,):
            fractions = self.fractions(units)
            for score, worth in self.scores(weights, units).items():
                by = {"units": units.value, "score": score.value}
                losses = [self.pruned(weights, units, score, worth, fraction) for fraction in fractions]
                added = torch.stack(losses, dim=-1) - loss.unsqueeze(-1)
                flat = scores.flat_part(added, fractions, LIKE_FULL)
                yield {MEASUREMENT: "flat part", **by}, {"flat": flat}
                for fraction, found in zip(fractions, losses, strict=True):
                    yield {MEASUREMENT: "pruning", **by, "fraction": fraction}, {"loss": found}

    def fractions(self, units: Units) -> tuple[float, ...]:
        """What is removed: twentieths of the neurons, or one head after the other."""
        heads = self.model.heads
        return NEURON_FRACTIONS if units is Units.NEURONS else tuple(n / heads for n in range(1, heads))

    def pruned(
        self, weights: Weights, units: Units, score: Score, worth: dict[int, Tensor], fraction: float
    ) -> Float[Tensor, " member"]:
        """The loss without a fraction of the units of every layer."""
        order = Order.LARGEST if score is Score.LARGEST else Order.SMALLEST
        gone = {layer: pruned_mask(value, fraction, order) for layer, value in worth.items()}
        remove = layered.without_neurons if units is Units.NEURONS else layered.without_heads
        return self.loss(remove(weights, gone))

    def scores(self, weights: Weights, units: Units) -> dict[Score, dict[int, Float[Tensor, "member unit"]]]:
        """Every score of every unit, layer by layer."""
        kind = "w_o" if units is Units.NEURONS else "w_v"
        model, data = self.model, self.calibration
        count = model.hidden if units is Units.NEURONS else model.heads
        seen = layered.passes(model, weights, data.x)
        _, hinge = layered.hinge_gradients(model, weights, data.x, data.labels)
        output = layered.output_gradients(model, weights, data.x, -data.labels)
        found: dict[Score, dict[int, Tensor]] = {score: {} for score in Score}
        for layer, each in enumerate(seen, start=1):
            name = f"{kind}/{layer}"
            own, before, by_hinge, by_output = (
                scores.units(table[name], count) for table in (weights, self.start, hinge, output)
            )
            size = magnitudes(own)
            chance = [
                torch.rand(count, generator=stream(seed, "order", units.value, layer)) for seed in self.seeds
            ]
            worth = {
                Score.MAGNITUDE: size,
                Score.MOVEMENT: scores.movement(before, own),
                Score.ACTIVATION: scores.activation(
                    own, each.mixed if units is Units.NEURONS else each.tokens
                ),
                Score.TAYLOR: scores.taylor(own, by_hinge),
                Score.TAYLOR_OUTPUT: scores.taylor(own, by_output),
                Score.RANDOM: torch.stack(chance).to(size),
                Score.LARGEST: size,
            }
            for score, value in worth.items():
                found[score][layer] = value
        return found
