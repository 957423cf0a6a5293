"""Theorem 1 and corollary 1 line by line: which claims and proofs decide each, and what the text cannot mean as printed."""

from collections.abc import Sequence
from dataclasses import replace

from rankscope.lab import Scale
from rankscope.lab.statement import Misprint, Statement
from rankscope.papers.li2024.claims import CLAIMS
from rankscope.papers.li2024.conditions import conditions_of
from rankscope.papers.li2024.experiments import experiments

_FEW = "α − κ = O(1/M), family B"

_LINES = (
    Statement("T", "T = Θ(η^(−3/5)) in the step size.", ["steps-rate"], proof="P1",
              why="ηT has a positive lower bound that does not depend on η, so T ∝ 1/η; the printed T has ηT → 0."),
    Statement("T", "T = Θ(1/α_*) in the fraction of relevant tokens.", ["steps-fraction", "steps-fraction-clear"],
              narrowed=["steps-fraction-few"], condition="no confusion tokens, and α_* = 1/M",
              why="T follows α − κ, not α: T = c/(η(α − κ)) (claim steps-law), where c varies slowly with α, δ, ξ and m."),
    Statement("(7), left", "μᵀΔWμ ≥ Ω(√log T), W_Q and W_K, relevant μ.", ["eq7-self"], proof="P4",
              why="‖ΔW‖ has an upper bound in ηT alone, and ηT stays bounded as η → 0, while √log T grows."),
    Statement("(7), right", "μ'ᵀΔW_Qμ ≤ O(1/(MT)), relevant μ, irrelevant μ'.", ["eq7-leak-steps-query"],
              why="It is negative: queries of relevant tokens turn away from irrelevant keys."),
    Statement("(7), right", "μ'ᵀΔW_Kμ ≤ O(1/(MT)), relevant μ, irrelevant μ'.", ["eq7-leak-patterns", "eq7-leak-steps-key"],
              why="The order 1/M is right, the 1/T is not: to first order it is the number of which (8) says Ω(1) (P3)."),
    Statement("(7), right", "μ'ᵀΔWμ ≤ O(1/(MT)) between μ_1 and μ_2.", ["eq7-leak-other"],
              why="Between the relevant patterns it tends to a constant as M grows: nothing about them depends on M."),
    Statement("(8), first", "μ'ᵀΔW_Qμ ≥ Ω(1), irrelevant μ, relevant μ'.", ["eq8-query"], narrowed=["eq8-query-few"],
              condition=_FEW, proof="P2",
              why="At fixed fractions an irrelevant query occurs with frequency O(1/M), and learns O(ηT/M)."),
    Statement("(8), first", "μ'ᵀΔW_Kμ ≥ Ω(1), irrelevant μ, relevant μ'.", ["eq8-key", "eq8-key-few"],
              why="The sign is the other way round in both families: irrelevant keys turn away from relevant queries (P3)."),
    Statement("(8), second and third", "μᵀΔWμ ≤ O(δ) and μ''ᵀΔWμ ≤ O(1/M), irrelevant patterns.", ["eq8-self", "eq8-leak"],
              why="Both are negative or nearly nothing."),
    Statement("(9), left", "μᵀΔW_Vμ ≥ Ω(1), relevant μ.", ["eq9-self"], why="W_V has to carry the margin."),
    Statement("(9), right", "μ'ᵀΔW_Vμ ≤ O(1/(MT)), relevant μ.", ["eq9-leak-steps", "eq9-leak-patterns"],
              why="Neurons that are active on one label only leave a positive leak of order 1/M, whatever η is (P6)."),
    Statement("(10), left", "μᵀΔW_Vμ ≥ Ω(1/M), irrelevant μ.", ["eq10-self"], narrowed=["eq10-self-few"], condition=_FEW,
              why="Where attention treats irrelevant patterns alike the mean over them is O(M^(−3/2)) (P5)."),
    Statement("(10), right", "μ'ᵀΔW_Vμ ≤ O(1/M), irrelevant μ.", ["eq10-leak"],
              why="An irrelevant pattern has a share O(1/M) of every sample."),
    Statement("(11) to (13)", "A set ℒ of Θ(m) neurons reaches Ω(1/√m) on its own pattern; the others stay at O(1/√m).",
              ["neurons-fixed-noise"], narrowed=["eq11", "eq12", "eq13", "set-size"], condition="ξ = O(1/√m)",
              why="With ξ fixed the start alone is longer than 1/√m."),
    Statement("Remark 1", "ΔW_Q, ΔW_K, ΔW_V and ΔW_O are approximately of rank 2.", ["rank-2"],
              why="Two labels give two mean samples, and the mean gradient is made of them."),
    Statement("Corollary 1", "Pruning outside ℒ adds O(1/M), (14); pruning a fraction R out of ℒ adds Ω(R), (15).",
              ["eq14", "eq15"], why="At T the margin is just reached, so every neuron of ℒ that goes is missed."),
)  # fmt: skip

MISPRINTS = (
    Misprint("(8), third", "μ''ᵀΔWμ ≤ O(1/M) for every μ'' ≠ μ",
             "between irrelevant patterns, since the first part says ≥ Ω(1) of the relevant ones"),
    Misprint("(11), (12)", "Ω(1/√m) inside ℒ and O(1/√m) outside",
             "as printed, though both are of one order, which asserts no sparsity"),
    Misprint("(12)", "μ ≠ 𝒰 \\ {μ_2}", "μ ∈ 𝒰 \\ {μ_2}, like (11)"),
    Misprint("(13)", "‖o_i‖ ≥ Ω(1/√m) outside ℒ", "≤ O(1/√m), since remark 1 and corollary 1 need the opposite"),
    Misprint("(1)", "an output vector per position", "one for all positions, since (11) to (13) speak of one sign per neuron"),
    Misprint("Section IV", "a start at δ²·I, and Gaussian noise σ = 0.1",
             "section II starts at δ·I; the noise has length σ√d = 0.45, where (6) allows O(1/M) = 0.05"),
)  # fmt: skip


def statements(scale: Scale) -> Sequence[Statement]:
    """Every line, with the conditions that the settings of its claims meet."""
    by_name = {experiment.name: experiment for experiment in experiments(scale)}
    of_claim = {claim.name: by_name[claim.experiment] for claim in CLAIMS}

    def conditions(line: Statement) -> str:
        found = conditions_of(cell for name in line.claims for cell in of_claim[name].cells())
        printed = [one for one in found if one.condition.printed]
        lacking = ", ".join(f"{one.condition.name} is not: {one}" for one in printed if not one.met)
        further = ", ".join(str(one) for one in found if one.met and not one.condition.printed)
        met = f"{sum(one.met for one in printed)} of {len(printed)} that are printed"
        return "; ".join(filter(None, (met, lacking, further and f"besides {further}")))

    return [replace(line, conditions=conditions(line)) for line in _LINES]
