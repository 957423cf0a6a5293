"""What is measured on a trained group with k patterns in c classes, as tidy rows."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Cell
from rankscope.lab.tidy import MEASUREMENT, WHOLE, Measured, Record, by_member
from rankscope.linalg.decompose import Factors
from rankscope.linalg.spectrum import effective_rank, energy_rank
from rankscope.linalg.weights import Weights
from rankscope.measure.neurons import magnitudes, two_groups
from rankscope.measure.updates import update_factors, with_update_rank
from rankscope.papers.li2024.measurement import LETTERS, TEST_SAMPLES, converged_step
from rankscope.tasks.patterns import batches
from rankscope.theory.updates.relevant import NEGLIGIBLE
from rankscope.training.sgd import Trajectory

RANKS = tuple(range(1, 11))
"""Ranks to which every update is truncated: up to two above the most patterns."""

ENERGY = 0.95
ATTENTION = ("w_q", "w_k")


class VoteExaminer:
    """Holds a group's test set and its start, and measures what training made of it."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        tasks, seeds = [cell.task for cell in cells], [cell.seed for cell in cells]
        self.start = start
        self.patterns = torch.tensor([task.relevant_patterns for task in tasks], device=device)
        self.classes = cells[0].model.classes
        most = int(self.patterns.max())
        samples = most * round(TEST_SAMPLES / most)
        test = next(batches(tasks, seeds, split=Split.TEST, steps=1, batch=samples, device=device))
        self.x, self.winner = test.x, test.winner % self.classes

    def records(self, trajectory: Trajectory) -> list[list[Record]]:
        """The records of each member at the end of its training."""
        step = max(trajectory.at)
        weights = trajectory.at[step]
        whole = {
            "loss": self.loss(weights),
            "accuracy": patterns.accuracy(patterns.forward(weights, self.x), self.winner),
            "converged_step": converged_step(trajectory.losses),
        }
        members: list[Record] = [
            {"step": step, "relevant_patterns": count, "classes": self.classes}
            for count in self.patterns.tolist()
        ]
        rows: list[Measured] = [
            ({MEASUREMENT: WHOLE}, whole),
            *self.truncation(weights),
            *self.ranks(weights),
            *self.neurons(weights),
        ]
        return by_member(members, rows)

    def loss(self, weights: Weights) -> Float[Tensor, " member"]:
        """The mean hinge on the test set."""
        return patterns.hinge(patterns.forward(weights, self.x), self.winner).mean(-1)

    def updates(self, weights: Weights) -> dict[str, Float[Tensor, "member value"]]:
        """The singular values of every update."""
        return {name: factors.values for name, factors in self._factors(weights).items()}

    def first_updates(self) -> dict[str, Float[Tensor, "member value"]]:
        """The singular values of the gradient at the start, on the test set: the first update, with little noise."""
        _, grads = patterns.hinge_gradients(self.start, self.x, self.winner)
        return {name: torch.linalg.svdvals(grad) for name, grad in grads.items()}

    def truncation(self, weights: Weights) -> Iterator[Measured]:
        """The loss with every update truncated to a rank, and with what attention learned taken back."""
        factors = self._factors(weights)
        for rank in RANKS:
            loss = self.loss(with_update_rank(self.start, weights, factors, rank))
            yield {MEASUREMENT: "truncation", "rank": rank}, {"loss": loss}
        back = {**weights, **{name: self.start[name] for name in ATTENTION}}
        yield {MEASUREMENT: "attention taken back"}, {"loss": self.loss(back)}

    def ranks(self, weights: Weights) -> Iterator[Measured]:
        """For each matrix its measured ranks; how far the k-th singular value is from the first, and from the next."""
        place = (self.patterns - 1).unsqueeze(-1)
        for name, sigma in self.updates(weights).items():
            at_k, after = (sigma.gather(-1, place + more).squeeze(-1) for more in (0, 1))
            yield (
                {MEASUREMENT: "update", "matrix": LETTERS[name]},
                {
                    "numerical_rank": _count(sigma),
                    "effective_rank": effective_rank(sigma),
                    "energy_rank": energy_rank(sigma, ENERGY),
                    "least": at_k / sigma[:, 0],
                    "gap": at_k / after,
                },
            )
        for name, sigma in self.first_updates().items():
            yield {MEASUREMENT: "first update", "matrix": LETTERS[name]}, {"numerical_rank": _count(sigma)}

    def neurons(self, weights: Weights) -> Iterator[Measured]:
        """How many neurons stay small, by what training added to them and by what they are."""
        for of, rows in (("update", weights["w_o"] - self.start["w_o"]), ("o", weights["w_o"])):
            yield {MEASUREMENT: "neurons", "of": of}, two_groups(magnitudes(rows))

    def _factors(self, weights: Weights) -> dict[str, Factors]:
        return update_factors(self.start, weights, TRAINED)


def _count(sigma: Float[Tensor, "member value"]) -> Int[Tensor, " member"]:
    """How many singular values are not negligible beside the first."""
    return (sigma >= NEGLIGIBLE * sigma[:, :1]).sum(-1)
