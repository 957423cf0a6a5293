"""What reaches irrelevant patterns, and what leaks from relevant ones: bounds and closed forms against (7) to (10).

α = `relevant`, κ = `confusion`, ρ = (1−α−κ)/(M−2) the share of each irrelevant pattern. The proofs are in docs/proofs.md.
"""

import math
from typing import NamedTuple

from rankscope.theory.updates.path import Mean


def query_bound(mean: Mean, path: float, noise: float = 0.0) -> float:
    """The greatest mean over irrelevant μ of ‖ΔW_Qμ‖ (P2).

    `path` is Σ_t η ‖W_K‖‖W_V‖‖W_O‖ along the training, `noise` is τ. A query moves W_Q only along itself, and
    what all queries along irrelevant patterns may add up to is shared by M − 2 of them:

        mean ≤ (1 − α − κ + τ√(M−2)) / (M − 2) · path

    At fixed fractions that is O(ηT/M): μ'ᵀΔW_Qμ ≥ Ω(1), as (8) says, takes ηT ≥ Ω(M), and so α − κ ≤ O(1/M).
    """
    others = mean.patterns - 2
    return (1 - mean.relevant - mean.confusion + noise * math.sqrt(others)) / others * path


class Pull(NamedTuple):
    """Entries of E[∂(yF)/∂(W_KᵀW_Q)] between a relevant pattern μ_1 and an irrelevant μ_j: rows are keys, columns queries."""

    onto_relevant: float
    onto_irrelevant: float


def attention_pull(mean: Mean, reading: float) -> Pull:
    """G_1j and G_j1 at uniform attention, where a sample reads `reading` more on average than an irrelevant token (P3).

    Ẇ_Q = W_K G and Ẇ_K = W_Q Gᵀ, so with W_Q ≈ W_K ≈ δI both μ_1ᵀΔW_Qμ_j and μ_jᵀΔW_Kμ_1 follow G_1j, and μ_1ᵀΔW_Kμ_j
    follows G_j1:

        G_1j = +½ ρ (1 − α − κ) · reading          G_j1 = −½ ρ (α + κ) · reading

    The reading is positive once the model tells the labels apart; it is c(α − κ) where W_O W_V reads c(μ_1 − μ_2).
    """
    voting = mean.relevant + mean.confusion
    return Pull(mean.other * (1 - voting) * reading / 2, -mean.other * voting * reading / 2)


def value_self_bound(mean: Mean, pull: float) -> float:
    """The greatest size of the mean over irrelevant μ of μᵀΔW_Vμ, where attention treats them alike (P5).

    `pull` is ‖Σ_t η E[y u]‖, the norm of what all samples add to W_V per unit of a token's weight. Every irrelevant pattern
    then gets the same vector w = ρ Σ_t η E[y u], and the mean of its entries on M − 2 orthonormal patterns is at most

        ‖w‖/√(M−2) = (1 − α − κ)/(M − 2)^{3/2} · pull          which is below Ω(1/M), (10)
    """
    return mean.other * pull / math.sqrt(mean.patterns - 2)


def value_leak(mean: Mean, reading: float) -> float:
    """μ_jᵀΔW_Vμ_1 per unit of path, irrelevant μ_j, from neurons that are active on one label only (P6).

    Such neurons grow along the mean token of their label, so that u₊·μ_j = −u₋·μ_j = ρ·`reading`, and

        μ_jᵀẆ_Vμ_1 = ½(α u₊·μ_j − κ u₋·μ_j) = ½ ρ (α + κ) · reading > 0

    of order 1/M, whatever η is: the 1/T of (9) is not there.
    """
    return mean.other * (mean.relevant + mean.confusion) * reading / 2
