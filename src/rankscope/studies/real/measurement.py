"""What is measured on two fine-tunings of one encoder, on two halves of the data that share no example."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from rankscope.checkpoints import open_checkpoint
from rankscope.lab.tidy import MEASUREMENT, WHOLE, Record
from rankscope.linalg.decompose import TopFactors, top_factors
from rankscope.linalg.weights import Weights
from rankscope.measure.needed_rank import needed_rank
from rankscope.measure.neurons import Order
from rankscope.measure.recurrence import recurrence
from rankscope.scope.neurons import silence
from rankscope.studies.real.training import Batch, Classifier

RANKS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Ranks kept of every update; 0 is the encoder as it was, under the trained head."""

SHARE = 0.95
"""Of the loss that the update gains: the rank that keeps it is the rank that is needed."""

FRACTIONS = (0.2, 0.4, 0.6, 0.8)
"""Shares of every layer's neurons that are silenced."""

DRAWS = {Order.SMALLEST: 1, Order.LARGEST: 1, Order.RANDOM: 3}
"""How often neurons are silenced in each order."""

SUBSPACE = 16
"""First directions of every update that are looked for in the other half: twice the most kinds or classes."""

PARTS = ("Q", "K", "V", "O")
"""The matrices of attention by short names."""

SEEN, HELD_OUT = "seen", "held out"


class Tuned(NamedTuple):
    """A fine-tuned classifier, how its encoder began, what it was trained on, and what was held out."""

    classifier: Classifier
    start: Weights
    seen: Sequence[Batch]
    test: Sequence[Batch]

    def update(self, name: str) -> Float[Tensor, "row column"]:
        """ΔW of one matrix."""
        return as_matrix(self.classifier.encoder.get_parameter(name).detach() - self.start[name])


def evaluations(permuted: bool) -> int:
    """How many models are evaluated for a half."""
    return 1 + len(RANKS) + (0 if permuted else sum(DRAWS.values()) * len(FRACTIONS))


def examine(
    halves: Sequence[Tuned], *, permuted: bool, tick: Callable[[], None] = lambda: None
) -> list[Record]:
    """Everything measured on the two halves: the rank that each needs, what they share, and what pruning costs.

    Permuted labels say nothing of what is held out: there only what was seen is measured.
    """
    records: list[Record] = []
    found = [updates(half) for half in halves]
    for place, (half, update) in enumerate(zip(halves, found, strict=True)):
        rows = [*truncation(half, update, permuted, tick), *(() if permuted else pruning(half, tick))]
        records += [{**row, "half": place} for row in rows]
    return [*records, *shared_directions(halves, found)]


def truncation(
    half: Tuned, found: "dict[str, Update]", permuted: bool, tick: Callable[[], None]
) -> Iterator[Record]:
    """The loss with every update cut to a rank, and the rank that is needed, on what was seen and what was held out."""
    sets = {SEEN: half.seen, **({} if permuted else {HELD_OUT: half.test})}
    losses: dict[str, list[Tensor]] = {on: [] for on in sets}
    ranks = (*RANKS, max(update.full_rank for update in found.values()))
    for place in range(len(ranks)):
        whole = place == len(RANKS)
        model = half.classifier if whole else with_update_rank(half, found, RANKS[place])
        for on, batches in sets.items():
            loss, accuracy = score(model, batches)
            losses[on].append(loss)
            values: Record = {"on": on, "loss": float(loss.mean()), "accuracy": accuracy}
            at: Record = {MEASUREMENT: WHOLE} if whole else {MEASUREMENT: "truncation", "rank": RANKS[place]}
            yield {**at, **values}
        tick()
    for on, each in losses.items():
        needed = needed_rank(torch.stack(each), ranks, SHARE)
        yield {
            MEASUREMENT: "needed rank",
            "on": on,
            **{f"needed_{k}": v for k, v in needed._asdict().items()},
        }


def pruning(half: Tuned, tick: Callable[[], None]) -> Iterator[Record]:
    """The loss on what is held out with a fraction of every layer's neurons silenced; at random, the mean over draws."""
    for order, draws in DRAWS.items():
        for fraction in FRACTIONS:
            losses = []
            for draw in range(draws):
                silenced = silence(half.classifier.encoder, fraction, order, seed=draw)
                losses.append(float(score(Classifier(silenced, half.classifier.head), half.test)[0].mean()))
                tick()
            yield {
                MEASUREMENT: "pruning",
                "order": order.value,
                "fraction": fraction,
                "loss": sum(losses) / len(losses),
            }


def shared_directions(halves: Sequence[Tuned], found: "Sequence[dict[str, Update]]") -> Iterator[Record]:
    """How many directions of an update recur in the other half's, and how far each: means over layers and both ways."""
    for part, names in layer_matrices(halves[0].classifier).items():
        shares = [
            found[place][name].recurring(halves[1 - place].update(name)) for place in (0, 1) for name in names
        ]
        recurring = torch.stack(shares)
        yield {MEASUREMENT: "shared", "part": part, "shared": float(recurring.sum(1).mean())}
        for place, share in enumerate(recurring.mean(0).tolist()):
            yield {MEASUREMENT: "direction", "part": part, "place": place + 1, "share": share}


def score(classifier: Classifier, batches: Sequence[Batch]) -> tuple[Float[Tensor, " sample"], float]:
    """The cross-entropy of every example, and the accuracy."""
    with torch.no_grad():
        logits = torch.cat([classifier(batch) for batch in batches])
    labels = torch.cat([batch.labels for batch in batches])
    right = (logits.argmax(-1) == labels).double().mean()
    return functional.cross_entropy(logits, labels, reduction="none"), float(right)


class Update(NamedTuple):
    """ΔW by its first singular directions, on the rows that moved: a word never seen keeps its embedding."""

    rows: Int[Tensor, " row"]
    factors: TopFactors

    def added_to(self, start: Float[Tensor, "*shape"], rank: int) -> Float[Tensor, "*shape"]:
        """The start with the first `rank` directions of the update."""
        cut = self.factors.left[:, :rank] @ self.factors.right[:rank]
        return as_matrix(start).index_add(0, self.rows, cut).reshape(start.shape)

    @property
    def full_rank(self) -> int:
        """How many directions the update could have."""
        return min(len(self.rows), self.factors.right.shape[1])

    def recurring(self, other: Float[Tensor, "row column"]) -> Float[Tensor, " direction"]:
        """How far the first directions recur in another update of the same matrix."""
        left, right = self.factors.left[:, :SUBSPACE], self.factors.right[:SUBSPACE]
        return recurrence(left, right, other[self.rows])


def as_matrix(weight: Float[Tensor, "*shape"]) -> Float[Tensor, "row column"]:
    """A weight as the matrix that it is: an axis of one in front dropped, filters flattened."""
    return (weight.squeeze(0) if weight.dim() > 2 else weight).flatten(1)


def updates(half: Tuned) -> dict[str, Update]:
    """ΔW of every matrix of the encoder, embeddings included."""
    found = {}
    for name, end in half.classifier.encoder.named_parameters():
        if end.dim() > 1:
            update = half.update(name)
            rows = update.any(1).nonzero()[:, 0]
            if len(rows):
                most = min(len(rows), update.shape[1], max(RANKS))
                found[name] = Update(rows, top_factors(update[rows], most))
    return found


def with_update_rank(half: Tuned, found: dict[str, Update], rank: int) -> Classifier:
    """The classifier with the update of every matrix cut to `rank`; what is no matrix keeps what it learned."""
    cut = copy.deepcopy(half.classifier)
    with torch.no_grad():
        for name, parameter in cut.encoder.named_parameters():
            if name in found:
                parameter.copy_(found[name].added_to(half.start[name], rank))
    return cut


def layer_matrices(classifier: Classifier) -> dict[str, list[str]]:
    """The names of the matrices of attention, by part, a layer after the other."""
    blocks = open_checkpoint(classifier.encoder).attention
    return {part: [block.weights[part.lower()] for block in blocks] for part in PARTS}
