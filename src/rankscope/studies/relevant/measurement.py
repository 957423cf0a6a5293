"""What is measured on a group with k patterns in c classes: a record a member, a column for each quantity."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.ensembles import many_class
from rankscope.ensembles.one_layer import TRAINED
from rankscope.lab import Cell
from rankscope.lab.experiment import Scalar
from rankscope.linalg.decompose import Factors
from rankscope.linalg.spectrum import effective_rank, energy_rank
from rankscope.linalg.weights import Weights
from rankscope.measure.neurons import large_neurons, magnitudes, separation
from rankscope.measure.updates import update_factors, with_update_rank
from rankscope.papers.li2024.measurement import LETTERS, TEST_SAMPLES
from rankscope.papers.li2024.training import seeds, tasks
from rankscope.studies.relevant.training import classes, models
from rankscope.tasks.patterns import batches
from rankscope.theory.updates.relevant import NEGLIGIBLE

RANKS = tuple(range(1, 11))
"""Ranks to which every update is truncated: up to two above the most patterns."""

ENERGY = 0.95
ATTENTION = ("w_q", "w_k")

Columns = dict[str, Tensor]


class Examiner:
    """Holds a group's test set and its start, and measures what training made of it."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        self.start = start
        self.patterns = torch.tensor([task.relevant_patterns for task in tasks(cells)], device=device)
        self.classes = models(cells)[0].classes
        most = int(self.patterns.max())
        samples = most * round(TEST_SAMPLES / most)
        test = next(batches(tasks(cells), seeds(cells), split="test", steps=1, batch=samples, device=device))
        self.x, self.winner = test.x, classes(cells, test)

    def records(self, step: int, weights: Weights) -> list[dict[str, Scalar]]:
        """One record a member."""
        columns = {
            "relevant_patterns": self.patterns,
            "loss": self.loss(weights),
            "accuracy": many_class.accuracy(many_class.forward(weights, self.x), self.winner),
            **self.truncation(weights),
            **self.ranks(self.updates(weights)),
            **{f"first_rank_{LETTERS[name]}": _count(sigma) for name, sigma in self.first_updates().items()},
            **self.neurons(weights),
        }
        plain = {name: values.tolist() for name, values in columns.items()}
        fixed = {"step": step, "classes": self.classes}
        return [{**fixed, **{name: plain[name][member] for name in plain}} for member in range(len(self.x))]

    def loss(self, weights: Weights) -> Float[Tensor, " member"]:
        """The mean hinge on the test set."""
        return many_class.hinge(many_class.forward(weights, self.x), self.winner).mean(-1)

    def updates(self, weights: Weights) -> dict[str, Float[Tensor, "member value"]]:
        """The singular values of every update."""
        return {name: factors.values for name, factors in self._factors(weights).items()}

    def first_updates(self) -> dict[str, Float[Tensor, "member value"]]:
        """The singular values of the gradient at the start, on the test set: the first update, with little noise."""
        _, grads = many_class.hinge_gradients(self.start, self.x, self.winner)
        return {name: torch.linalg.svdvals(grad) for name, grad in grads.items()}

    def truncation(self, weights: Weights) -> Columns:
        """The loss with every update truncated to a rank, and with what attention learned taken back."""
        factors = self._factors(weights)
        columns = {
            f"loss_rank_{rank}": self.loss(with_update_rank(self.start, weights, factors, rank))
            for rank in RANKS
        }
        back = {**weights, **{name: self.start[name] for name in ATTENTION}}
        return {**columns, "loss_attention_back": self.loss(back)}

    def ranks(self, values: dict[str, Float[Tensor, "member value"]]) -> Columns:
        """For each matrix its measured ranks; how far the k-th singular value is from the first, and from the next."""
        columns: Columns = {}
        place = (self.patterns - 1).unsqueeze(-1)
        for name, letter in LETTERS.items():
            sigma = values[name]
            at_k, after = (sigma.gather(-1, place + more).squeeze(-1) for more in (0, 1))
            columns[f"rank_{letter}"] = _count(sigma)
            columns[f"effective_{letter}"] = effective_rank(sigma)
            columns[f"energy_{letter}"] = energy_rank(sigma, ENERGY)
            columns[f"least_{letter}"] = at_k / sigma[:, 0]
            columns[f"gap_{letter}"] = at_k / after
        return columns

    def neurons(self, weights: Weights) -> Columns:
        """How many neurons stay small, by what training added to them and by what they are."""
        columns: Columns = {}
        for tag, rows in (("update", weights["w_o"] - self.start["w_o"]), ("o", weights["w_o"])):
            large = large_neurons(magnitudes(rows))
            columns[f"{tag}_small_fraction"] = 1 - large.to(rows.dtype).mean(-1)
            columns[f"{tag}_separation"] = separation(magnitudes(rows), large)
        return columns

    def _factors(self, weights: Weights) -> dict[str, Factors]:
        return update_factors(self.start, weights, TRAINED)


def _count(sigma: Float[Tensor, "member value"]) -> Int[Tensor, " member"]:
    """How many singular values are not negligible beside the first."""
    return (sigma >= NEGLIGIBLE * sigma[:, :1]).sum(-1)
