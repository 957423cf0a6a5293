"""The paper's measurements on a fine-tuned encoder: ranks of ΔW, truncation, neurons, pruning."""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from rankscope.checkpoints import open_checkpoint
from rankscope.lab import Outcome
from rankscope.lab.experiment import Scalar
from rankscope.lab.tidy import MEASUREMENT, WHOLE, Record
from rankscope.linalg.decompose import TopFactors, top_factors
from rankscope.linalg.weights import Weights
from rankscope.measure.neurons import Order, magnitudes, two_groups
from rankscope.scope.neurons import silence
from rankscope.scope.updates import measure_updates
from rankscope.studies.real.training import Batch, Classifier

RANKS = (0, 1, 2, 4, 8, 32)
"""Ranks kept of every update; 0 is the encoder as it was, under the trained head."""

FRACTIONS = (0.2, 0.4, 0.6, 0.8)
"""Shares of every layer's neurons that are silenced."""

ORDERS = {"smallest": Order.SMALLEST, "largest": Order.LARGEST}

PARTS = ("Q", "K", "V", "O", "up", "down")
"""The matrices of a layer by short names."""

SHARES = (0.9, 0.95)
"""Of ‖ΔW‖² that the counted directions hold."""

EVERY, LAST = "all", "last"
"""All parts or layers, of which a record has the median, and the last layer."""

EVALUATIONS = 1 + len(RANKS) + len(ORDERS) * len(FRACTIONS)


def examine(
    classifier: Classifier, start: Weights, test: Sequence[Batch], *, tick: Callable[[], None] = lambda: None
) -> Outcome:
    """Everything measured on one fine-tuned classifier, whose encoder began as `start`."""
    records: list[Record] = []

    def evaluated(model: Classifier, measurement: str, **at: Scalar) -> None:
        accuracy, loss = score(model, test)
        records.append({MEASUREMENT: measurement, **at, "accuracy": accuracy, "loss": loss})
        tick()

    evaluated(classifier, WHOLE)
    found = updates(classifier, start)
    for rank in RANKS:
        evaluated(with_update_rank(classifier, start, found, rank), "truncation", rank=rank)
    for tag, order in ORDERS.items():
        for fraction in FRACTIONS:
            silenced = Classifier(silence(classifier.encoder, fraction, order), classifier.head)
            evaluated(silenced, "pruning", order=tag, fraction=fraction)
    ranks, arrays = update_ranks(classifier, start)
    neurons, norms = update_neurons(classifier, start)
    classes = classifier.head.out_features
    return Outcome(
        [{"classes": classes, **record} for record in (*records, *ranks, neurons)], {**arrays, **norms}
    )


def score(classifier: Classifier, test: Sequence[Batch]) -> tuple[float, float]:
    """Accuracy and mean cross-entropy on what is held out."""
    with torch.no_grad():
        logits = torch.cat([classifier(batch) for batch in test])
    labels = torch.cat([batch.labels for batch in test])
    right = (logits.argmax(-1) == labels).double().mean()
    return float(right), float(functional.cross_entropy(logits, labels))


class Update(NamedTuple):
    """ΔW by its singular directions, on the rows that moved: a word never seen keeps its embedding."""

    rows: Int[Tensor, " row"]
    factors: TopFactors

    def added_to(self, start: Float[Tensor, "*shape"], rank: int) -> Float[Tensor, "*shape"]:
        """The start with the first `rank` directions of the update."""
        cut = self.factors.left[:, :rank] @ self.factors.right[:rank]
        return as_matrix(start).index_add(0, self.rows, cut).reshape(start.shape)


def as_matrix(weight: Float[Tensor, "*shape"]) -> Float[Tensor, "row column"]:
    """A weight as the matrix that it is: an axis of one in front dropped, filters flattened."""
    return (weight.squeeze(0) if weight.dim() > 2 else weight).flatten(1)


def updates(classifier: Classifier, start: Weights) -> dict[str, Update]:
    """ΔW of every matrix of the encoder, embeddings included."""
    found = {}
    for name, end in classifier.encoder.named_parameters():
        if end.dim() > 1:
            update = as_matrix(end.detach() - start[name])
            rows = update.any(1).nonzero()[:, 0]
            if len(rows):
                found[name] = Update(rows, top_factors(update[rows], min(len(rows), update.shape[1])))
    return found


def with_update_rank(
    classifier: Classifier, start: Weights, found: dict[str, Update], rank: int
) -> Classifier:
    """The classifier with the update of every matrix cut to `rank`; what is no matrix keeps what it learned."""
    cut = copy.deepcopy(classifier)
    with torch.no_grad():
        for name, parameter in cut.encoder.named_parameters():
            if name in found:
                parameter.copy_(found[name].added_to(start[name], rank))
    return cut


def update_ranks(classifier: Classifier, start: Weights) -> tuple[list[Record], dict[str, Tensor]]:
    """The instrument `updates` on the layers' matrices: medians over all and by part, the last layer's, and arrays of all.

    Stored in bfloat16, as most checkpoints are, fewer directions stand above the rounding.
    """
    names = layer_matrices(classifier)
    every = [name for part in PARTS for name in names[part]]
    trained = dict(classifier.encoder.named_parameters())
    pair = [{name: weights[name].detach() for name in every} for weights in (start, trained)]
    device = classifier.head.weight.device
    scope = measure_updates(*pair, device=device)
    table = scope.table.set_index("name")
    coarse = [{name: value.bfloat16() for name, value in weights.items()} for weights in pair]
    stored = measure_updates(*coarse, device=device).table.set_index("name")
    table["signal_rank_bf16"] = stored["signal_rank"].fillna(0)
    table["gap"] = [float(scope.spectra[str(name)][1] / scope.spectra[str(name)][2]) for name in table.index]
    energy = {share: f"energy@{share:.2f}" for share in SHARES}
    plain = ("effective_rank", "stable_rank", "signal_rank", "gap")

    def energy_rank(share: float, part: str, layer: str, rank: float) -> Record:
        return {
            MEASUREMENT: "energy rank",
            "share": share,
            "part": part,
            "layer": layer,
            "energy_rank": float(rank),
        }

    records: list[Record] = [
        {MEASUREMENT: "update", "stored": "float32", **{name: float(table[name].median()) for name in plain}},
        {
            MEASUREMENT: "update",
            "stored": "bfloat16",
            "signal_rank": float(table["signal_rank_bf16"].median()),
        },
        *(energy_rank(share, EVERY, EVERY, table[column].median()) for share, column in energy.items()),
    ]
    share, column = next(iter(energy.items()))
    for part in PARTS:
        ranks = table.loc[names[part], column]
        records.append(energy_rank(share, part, EVERY, ranks.median()))
        records.append(energy_rank(share, part, LAST, ranks.iloc[-1]))
    grids = {
        column: torch.tensor([table.loc[names[part], column].tolist() for part in PARTS]).T
        for column in (*energy.values(), *plain, "signal_rank_bf16")
    }
    spectra = {
        f"spectrum/{part}": torch.stack([scope.spectra[name] for name in names[part]]) for part in PARTS
    }
    return records, {**grids, **spectra}


def update_neurons(classifier: Classifier, start: Weights) -> tuple[Record, dict[str, Tensor]]:
    """How far every neuron moved, ‖Δo_i‖ of what it reads, and whether that falls into two groups [figure 3A]."""
    trained = dict(classifier.encoder.named_parameters())
    names = layer_matrices(classifier)["up"]
    update = magnitudes(torch.stack([trained[name].detach() - start[name] for name in names])).cpu()
    groups = {name: float(values.median()) for name, values in two_groups(update.double()).items()}
    return {MEASUREMENT: "neurons", "of": "update", **groups}, {"neurons/update": update}


def layer_matrices(classifier: Classifier) -> dict[str, list[str]]:
    """The names of the layers' matrices, by part, a layer after the other."""
    view = open_checkpoint(classifier.encoder)
    attention = {part: [block.weights[part.lower()] for block in view.attention] for part in PARTS[:4]}
    return {**attention, **{part: [block.weights[part] for block in view.mlps] for part in PARTS[4:]}}
