"""Every statement of the talk that can be computed, as it stands there, and what replaces it where it is not so.

A statement marked "not in the talk" is ours: the correction of one beside it, or what the talk leaves to be worked out.
"""

from dataclasses import replace

from rankscope.lab import Checks, Claim, paper_claim
from rankscope.papers.amsel2024.computed import checks

OURS = "not in the talk"


def _claim(
    name: str,
    source: str,
    statement: str,
    *,
    value: str = "–",
    experiment: str,
    figure: str,
    check: Checks,
    over: str = "seeds",
) -> Claim:
    return replace(
        paper_claim("amsel2024", name, source, statement, value, f"computed-{experiment}", figure, check),
        checks=check if over == "seeds" else checks.of_one_seed(check),
        replicas=over,
    )


CLAIMS = (
    _claim(
        "full-rank",
        "Upper bound",
        "One full-rank hardmax head is exact for any number of points: r = d, H = 1 suffices.",
        value="error 0",
        experiment="softmax",
        figure="softmax",
        check=checks.full_rank_head_is_exact,
    ),
    _claim(
        "softmax-as-hardmax",
        "Target function",
        "Scaled up, a softmax head acts like a hardmax head: its error is the computed one and falls with β.",
        value="β = 10¹⁰",
        experiment="softmax",
        figure="softmax",
        check=checks.softmax_errs_as_computed,
    ),
    _claim(
        "standard-scaling",
        "Conclusion",
        "Below full rank, H = d/r heads cannot represent the nearest neighbour: the floor is positive at every "
        "rank (for any V: r ≤ d − 3, as in Theorem 2).",
        value="error > 0",
        experiment="floors",
        figure="floors",
        check=checks.standard_scaling_has_a_floor,
        over="dims",
    ),
    _claim(
        "high-accuracy-regime",
        "Theorem 2, regime 1",
        "H ≤ C·2^(d − (r+1) log₂(2d/r)) heads have error ≥ c/(d+1). The talk gives no constants; the computed floor "
        "supports C = 1 and c = 2.",
        value="c, C not given",
        experiment="floors",
        figure="floors",
        check=checks.high_accuracy_regime,
        over="dims",
    ),
    _claim(
        "polynomial-heads",
        "Lower bound (informal)",
        "At a fixed error the heads needed grow polynomially in d/r. The degree is L(ε), the degree of the harmonics "
        "that must be captured (measured in d, at fixed r).",
        value="degree grows as ε falls",
        experiment="growth",
        figure="heads",
        check=checks.heads_grow_with_degree,
        over="ranks",
    ),
    _claim(
        "ratio-alone",
        "Lower bound (informal)",
        "At a fixed error the heads needed depend on d and r through d/r alone: doubling both changes nothing. (So it "
        "is once r ≫ L(ε)²; at smaller ranks doubling both takes more heads.)",
        value="polynomial in d/r",
        experiment="scaling",
        figure="heads",
        check=checks.only_the_ratio_matters,
        over="ratios",
    ),
    _claim(
        "exponent-small-errors",
        "Theorem 2, think of H ≲ (d/r)^(1/ε)",
        "For ε ≤ 0.05 the exponent is at least 1/ε. It grows like 0.0645/ε², so 1/ε is modest.",
        value="1/ε: 20 at ε = 0.05",
        experiment="exponents",
        figure="heads",
        check=checks.exponent_at_small_errors,
        over="errors",
    ),
    _claim(
        "exponent-moderate-errors",
        "Theorem 2, think of H ≲ (d/r)^(1/ε)",
        "The exponent is at least 1/ε for errors from 0.08 to 0.2, too. (At rank 1 the bound is attained: there, "
        "fewer heads do suffice.)",
        value="1/ε: 10 at ε = 0.1",
        experiment="exponents",
        figure="heads",
        check=checks.exponent_at_moderate_errors,
        over="errors",
    ),
    _claim(
        "touched-harmonics",
        "Expansion of the head functions",
        "A head of rank r with V ∝ I touches at most C(r+l, l) harmonics of degree l. Exactly it is C(r+l−1, l): the "
        "slide gives away one unit of rank.",
        value="M ≤ C(r+l, l)",
        experiment="counts",
        figure="lemmas",
        check=checks.slide_bounds_the_count,
    ),
    _claim(
        "touched-harmonics-any-values",
        "Theorem 2 with that lemma",
        "The same count C(r+l, l) holds for arbitrary V_h.",
        value="M ≤ C(r+l, l)",
        experiment="counts",
        figure="lemmas",
        check=checks.slide_bounds_the_count_for_any_values,
    ),
    _claim(
        "touched-harmonics-corrected",
        OURS,
        "For arbitrary V_h a head touches at most 2C(l+r−1, l) + C(l+r−3, l−2) harmonics of degree l.",
        experiment="counts",
        figure="lemmas",
        check=checks.formula_bounds_the_count_for_any_values,
    ),
    _claim(
        "orthogonal-features",
        "Expansion of sgn",
        "The functions T(Y_l^i ⊗ Y_l^i) are orthogonal.",
        value="orthogonal",
        experiment="orthogonality",
        figure="lemmas",
        check=checks.features_are_orthogonal,
    ),
    _claim(
        "representer",
        "Representing sgn",
        "There is a function u with sgn⟨x, y⟩ = T u: cut at ever higher degrees, its series settles.",
        value="u exists",
        experiment="representer",
        figure="lemmas",
        check=checks.representer_settles,
        over="dims",
    ),
    _claim(
        "energy-decay",
        "Expansion of sgn",
        "The energy of degree l decays as N(d, l)·β_l ~ d/l².",
        value="d/l²",
        experiment="energies",
        figure="energies",
        check=checks.energy_decays(1.0),
        over="dims",
    ),
    _claim(
        "energy-decay-corrected",
        OURS,
        "For l ≫ d the energy of degree l decays as √d/l².",
        experiment="energies",
        figure="energies",
        check=checks.energy_decays(0.5),
        over="dims",
    ),
    _claim(
        "random-features-figure",
        "Random-features figure",
        "The published curve is the error of the random rank-1 heads that were drawn.",
        value="about 0.13 at dim 8, 16,384 heads",
        experiment="random-features",
        figure="random-features",
        check=checks.printed_is_the_error,
    ),
    _claim(
        "random-features-corrected",
        OURS,
        "Simulating the vector problem with the published weights gives their computed error and not the printed "
        "number; the same heads have better weights.",
        experiment="random-features",
        figure="random-features",
        check=checks.simulation_agrees_with_the_correction,
    ),
    _claim(
        "tightness",
        "Open / in progress",
        "The lower bound is pretty much tight: just use random rank-1 heads. (Asked: within a factor 2 of the best "
        "rank-1 heads, which attain it.)",
        value="pretty much tight",
        experiment="random-features",
        figure="random-features",
        check=checks.random_heads_are_near_the_bound,
    ),
    _claim(
        "plateau",
        OURS,
        "Random rank-1 heads rest at ½(1 − E₁) until there are about N(d, 3)² of them.",
        experiment="random-features",
        figure="random-features",
        check=checks.random_heads_rest_at_the_plateau,
    ),
    _claim(
        "random-heads-prediction",
        OURS,
        "A deterministic equation predicts the error of independent random heads with the best weights, from 256 "
        "heads on.",
        experiment="random-features",
        figure="random-features",
        check=checks.prediction_holds,
    ),
    _claim(
        "many-random-heads",
        OURS,
        "From 8,192 heads on, solved for without their matrix, that equation predicts their error within 1%.",
        experiment="many-heads",
        figure="random-features",
        check=checks.prediction_holds_for_many_heads,
    ),
    _claim(
        "single-head",
        "Modified attention, L = 2, N = 2",
        "A random rank-1 head with q = k is right with probability ~ 1/2 + 1/√d. The order is so; the constant is "
        "√(2/π)/π = 0.254.",
        value="1/√d",
        experiment="votes-needed",
        figure="majority",
        check=checks.one_head_beats_a_coin,
        over="dims",
    ),
    _claim(
        "majority-vote",
        "Modified attention, L = 2, N = 2",
        "The majority of many such heads is correct with high probability: simulated votes fail at the exact rate.",
        value="with high probability",
        experiment="majority",
        figure="majority",
        check=checks.votes_fail_at_the_exact_rate,
    ),
    _claim(
        "votes-needed",
        OURS,
        "A majority that fails with probability δ takes about d/(4δ²) heads.",
        experiment="votes-needed",
        figure="majority",
        check=checks.heads_for_a_failure_rate,
        over="dims",
    ),
)
