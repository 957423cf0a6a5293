"""Every quantity of the paper, measured on a trained group: a record for each kept step, a column for each quantity.

Columns are named after what they are; in brackets the equation or figure they serve.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.ensembles import one_layer
from rankscope.ensembles.one_layer import TRAINED
from rankscope.lab import Cell
from rankscope.lab.experiment import Scalar
from rankscope.linalg.weights import Weights
from rankscope.measure.attention_mass import attention_mass
from rankscope.measure.neurons import Order, large_neurons, magnitudes, pruned_mask, separation, without
from rankscope.measure.updates import alignment, update_factors, with_update_rank
from rankscope.papers.li2024.training import seeds, tasks
from rankscope.tasks.patterns import PatternBatch, batches, frames

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

LABELS = {
    "qk_relevant_self": "μᵀΔWμ (Q, K; relevant μ)",
    "qk_relevant_leak": "μ'ᵀΔWμ (Q, K; relevant μ)",
    "q_irrelevant_to_relevant": "μ'ᵀΔW_Qμ (irrelevant μ, relevant μ')",
    "k_irrelevant_to_relevant": "μ'ᵀΔW_Kμ (irrelevant μ, relevant μ')",
    "qk_irrelevant_self": "μᵀΔWμ (Q, K; irrelevant μ)",
    "qk_irrelevant_leak": "μ'ᵀΔWμ (Q, K; both irrelevant)",
    "v_relevant_self": "μᵀΔW_Vμ (relevant μ)",
    "v_relevant_leak": "μ'ᵀΔW_Vμ (relevant μ)",
    "v_irrelevant_self": "μᵀΔW_Vμ (irrelevant μ)",
    "v_irrelevant_leak": "μ'ᵀΔW_Vμ (irrelevant μ)",
    "update_small_norm": "‖Δo_i‖ outside ℒ",
    "o_small_norm": "‖o_i‖ outside ℒ",
    **{
        f"{tag}_{group}_{side}": f"|{row}·{target}|, {'in' if group.startswith('large') else 'outside'} ℒ, a {sign} 0"
        for tag, row in (("o", "o_i"), ("update", "Δo_i"))
        for group, target in (("large_on_own", "μ_own"), ("small_on_other", "μ_other"))
        for side, sign in (("plus", ">"), ("minus", "<"))
    },
}
"""How the page names the columns that theorem 1 bounds."""

Columns = dict[str, Float[Tensor, " member"]]


class Examiner:
    """Holds a group's test set and patterns, and measures its weights at any step."""

    def __init__(self, cells: Sequence[Cell], start: Weights, device: str) -> None:
        self.start = start
        self.test: PatternBatch = next(
            batches(tasks(cells), seeds(cells), split="test", steps=1, batch=TEST_SAMPLES, device=device)
        )
        self.relevant = self.test.relevant()
        self.mass_start = self.contributions(start)[1]["mass"]
        self.patterns = torch.stack(frames(tasks(cells), seeds(cells), device=device)).to(self.test.x.dtype)

    def records(self, step: int, weights: Weights) -> list[dict[str, Scalar]]:
        """One record a member."""
        parts, found = self.contributions(weights)
        columns = {
            **found,
            "mass_start": self.mass_start,
            **self.truncation(weights),
            **self.pruning(weights, parts),
            **self.alignments(weights),
            **self.neurons(weights, parts),
        }
        plain = {name: values.double().tolist() for name, values in columns.items()}
        members = len(self.test.x)
        return [{"step": step, **{name: plain[name][member] for name in plain}} for member in range(members)]

    def contributions(self, weights: Weights) -> tuple[Tensor, Columns]:
        """What each neuron adds to the output on the test set; the loss f(Ψ) [(4)] and attention mass [figure 1B]."""
        attended = one_layer.attention(weights, self.test.x)
        parts = one_layer.neuron_outputs(weights, self.test.x, attended)
        return parts, {"loss": self.loss(parts.sum(-1)), "mass": attention_mass(attended, self.relevant)}

    def loss(self, output: Float[Tensor, "member sample"]) -> Float[Tensor, " member"]:
        """f(Ψ), equation (4), on the test set."""
        return one_layer.hinge(output, self.test.labels).mean(-1)

    def truncation(self, weights: Weights) -> Columns:
        """Loss and attention mass with every update truncated [figure 1]; singular values [figure 2, remark 1]."""
        factors = update_factors(self.start, weights, TRAINED)
        columns: Columns = {}
        for rank in RANKS:
            _, found = self.contributions(with_update_rank(self.start, weights, factors, rank))
            columns |= {f"{name}_rank_{rank}": values for name, values in found.items()}
        for name, letter in LETTERS.items():
            for place in (1, 2, 3):
                columns[f"sigma_{letter}_{place}"] = factors[name].values[:, place - 1]
        return columns

    def pruning(self, weights: Weights, parts: Tensor) -> Columns:
        """Loss with a fraction of neurons removed, by ‖o_i‖ [figure 3B] and, the largest, by ‖Δo_i‖ as in ℒ [(15)]."""
        size, update = magnitudes(weights["w_o"]), magnitudes(weights["w_o"] - self.start["w_o"])
        columns: Columns = {}
        for fraction in FRACTIONS:
            for order in (Order.SMALLEST, Order.LARGEST):
                gone = pruned_mask(size, fraction, order)
                columns[f"loss_{order}_{fraction:g}"] = self.loss(without(parts, gone))
            gone = pruned_mask(update, fraction, Order.LARGEST)
            columns[f"loss_without_largest_updates_{fraction:g}"] = self.loss(without(parts, gone))
        return columns

    def alignments(self, weights: Weights) -> Columns:
        """The extremes of μ'ᵀΔWμ that each inequality of theorem 1 bounds [(7) to (10)].

        A "≥" bounds the least, a "≤" the greatest. Rows of an alignment are μ', columns μ; the relevant patterns
        come first.
        """
        q, k, v = (
            alignment(weights[name] - self.start[name], self.patterns) for name in ("w_q", "w_k", "w_v")
        )
        both = torch.stack([q, k])
        other = ~torch.eye(q.shape[-1], dtype=torch.bool, device=q.device)
        return {
            "qk_relevant_self": _diagonal(both)[..., :2].amin((0, -1)),
            "qk_relevant_leak": both[..., :2].where(other[:, :2], -torch.inf).amax((0, -1, -2)),
            "q_irrelevant_to_relevant": q[:, :2, 2:].amin((-1, -2)),
            "k_irrelevant_to_relevant": k[:, :2, 2:].amin((-1, -2)),
            "qk_irrelevant_self": _diagonal(both)[..., 2:].amax((0, -1)),
            "qk_irrelevant_leak": both[..., 2:, 2:].where(other[2:, 2:], -torch.inf).amax((0, -1, -2)),
            "v_relevant_self": _diagonal(v)[..., :2].amin(-1),
            "v_relevant_leak": v[..., :2].where(other[:, :2], -torch.inf).amax((-1, -2)),
            "v_irrelevant_self": _diagonal(v)[..., 2:].amin(-1),
            "v_irrelevant_leak": v[..., 2:].where(other[:, 2:], -torch.inf).amax((-1, -2)),
        }

    def neurons(self, weights: Weights, parts: Tensor) -> Columns:
        """The set ℒ of neurons that grew, what they point at, and what the others are [(11) to (14)].

        ℒ is the upper of two clusters of ‖Δo_i‖. A neuron's own pattern is μ_1 if a_i > 0 and μ_2 otherwise (with
        one output vector per position the sign of their mean decides). A "≥" bounds the least of ℒ, a "≤" the greatest
        of the others.
        """
        update = weights["w_o"] - self.start["w_o"]
        large = large_neurons(magnitudes(update))
        sign = weights["a"] if weights["a"].ndim == 2 else weights["a"].mean(1)
        own = (sign <= 0).long().unsqueeze(-1)
        columns = {
            "small_share_of_large": _mean(magnitudes(update), ~large) / _mean(magnitudes(update), large),
            "loss_without_small": self.loss(without(parts, ~large)),
        }
        for tag, rows in (("o", weights["w_o"]), ("update", update)):
            upper = large_neurons(magnitudes(rows))
            columns[f"{tag}_small_fraction"] = 1 - upper.to(rows.dtype).mean(-1)
            columns[f"{tag}_separation"] = separation(magnitudes(rows), upper)
            along = (rows @ self.patterns.mT).abs()
            mine = along.gather(-1, own).squeeze(-1)
            rest = along.scatter(-1, own, 0.0).amax(-1)
            for side, chosen in (("plus", sign > 0), ("minus", sign <= 0)):
                columns[f"{tag}_large_on_own_{side}"] = mine.where(large & chosen, torch.inf).amin(-1)
                columns[f"{tag}_small_on_other_{side}"] = rest.where(~large & chosen, 0.0).amax(-1)
            columns[f"{tag}_small_norm"] = magnitudes(rows).where(~large, 0.0).amax(-1)
        return columns


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


def _diagonal(matrix: Float[Tensor, "*batch pattern pattern"]) -> Float[Tensor, "*batch pattern"]:
    return torch.diagonal(matrix, dim1=-2, dim2=-1)


def _mean(values: Float[Tensor, "member hidden"], chosen: Tensor) -> Float[Tensor, " member"]:
    return values.where(chosen, 0.0).sum(-1) / chosen.sum(-1)
