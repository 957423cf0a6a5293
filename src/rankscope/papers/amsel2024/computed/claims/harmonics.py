"""The talk's lemmas: how many harmonics a head touches, and how sgn is made of them."""

from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtMost, Between, Check, Claims, Origin
from rankscope.lab.seeds import by_seed
from rankscope.papers.amsel2024.computed.claims.replicas import (
    AS_SAID,
    EXACT,
    FREE,
    LARGE_DIM,
    OURS,
    last_slopes,
    no_exception,
    of_one_seed,
)

SIX_DIGITS = 1e-6
"""What is left of 16 digits after a random basis, which can be badly conditioned, is made orthonormal."""

CLAIMS = Claims("amsel2024", Origin.READING)
_counts = partial(CLAIMS, experiment="computed-counts", figure="lemmas")
_energies = partial(CLAIMS, experiment="computed-energies", figure="energies", replicas="dims")


@_counts(
    "touched-harmonics",
    source="Expansion of the head functions",
    says="A head of rank r with V ∝ I touches at most C(r+l, l) harmonics of degree l. Exactly it is C(r+l−1, l): the "
    "slide gives away one unit of rank.",
    value="M ≤ C(r+l, l)",
)
def _slide_bounds_the_count(table: pd.DataFrame) -> list[Check]:
    rows = table[table["values"] == "identity"]
    wrong = {
        "shapes where a head touches more than C(r+l, l)": rows["found"] > rows["slide"],
        "shapes where the count is not C(r+l−1, l)": rows["found"] != rows["formula"],
        "shapes where C(r+l, l) is not the count at rank r + 1": rows["slide"] != rows["rank_more"],
    }
    return [no_exception(what, rows, shapes, "seed") for what, shapes in wrong.items()]


def _count_for_any_values(column: str, formula: str, table: pd.DataFrame) -> list[Check]:
    rows = table[table["values"] == "any"]
    what = f"shapes where a head with arbitrary V touches more than {formula}"
    return [no_exception(what, rows, rows["found"] > rows[column], "seed")]


_counts(
    "touched-harmonics-any-values",
    source="Theorem 2 with that lemma",
    says="The same count C(r+l, l) holds for arbitrary V_h.",
    value="M ≤ C(r+l, l)",
)(partial(_count_for_any_values, "slide", "C(r+l, l)"))
_counts(
    "touched-harmonics-corrected",
    source=OURS,
    says="For arbitrary V_h a head touches at most 2C(l+r−1, l) + C(l+r−3, l−2) harmonics of degree l.",
    origin=Origin.BEYOND,
)(partial(_count_for_any_values, "formula", "2C(l+r−1, l) + C(l+r−3, l−2)"))


@CLAIMS(
    "orthogonal-features",
    source="Expansion of sgn",
    says="The functions T(Y_l^i ⊗ Y_l^i) are orthogonal.",
    value="orthogonal",
    experiment="computed-orthogonality",
    figure="lemmas",
    origin=Origin.PAPER,
)
def _features_are_orthogonal(table: pd.DataFrame) -> list[Check]:
    cosine, norm = (by_seed(table, table[column], "max") for column in ("largest_cosine", "norm_error"))
    return [
        Check("largest cosine between two of them", cosine, AtMost(1e-10), EXACT),
        Check("largest relative error of ‖T(Y⊗Y)‖ = λ²", norm, AtMost(SIX_DIGITS), EXACT),
    ]


@CLAIMS(
    "representer",
    source="Representing sgn",
    says="There is a function u with sgn⟨x, y⟩ = T u: cut at ever higher degrees, its series settles.",
    value="u exists",
    experiment="computed-representer",
    figure="lemmas",
    replicas="dims",
)
@of_one_seed
def _representer_settles(table: pd.DataFrame) -> list[Check]:
    slopes = np.array(last_slopes(table, "dim", "cut", np.log(table["norm"])))
    growth = slopes / (np.array(sorted(table["dim"].unique())) - 0.5)  # it would grow like the power d − 1/2
    return [
        Check("exponent of ‖u‖ in the degree it is cut at, over d − 1/2", tuple(growth), AtMost(0.05), FREE)
    ]


def _energy_decay(power: float, table: pd.DataFrame) -> list[Check]:
    """Energy ~ d^power/l² where l ≫ d, for dims large enough to tell the power."""
    table = table[table["dim"] >= LARGE_DIM]
    in_degree = last_slopes(table, "dim", "degree", np.log(table["energy"]))
    last = table[table["degree"] == table.groupby("dim")["degree"].transform("max")].sort_values("dim")
    constant = np.log(last["energy"] * last["degree"].astype(float) ** 2)
    in_dim = np.diff(constant) / np.diff(np.log(last["dim"]))
    return [
        Check("exponent in l of the energy of degree l, l ≫ d", in_degree, Between(-2.05, -1.95), AS_SAID),
        Check("exponent in d of energy · l²", tuple(in_dim), Between(power - 0.05, power + 0.05), AS_SAID),
    ]


_energies(
    "energy-decay",
    source="Expansion of sgn",
    says="The energy of degree l decays as N(d, l)·β_l ~ d/l².",
    value="d/l²",
)(of_one_seed(partial(_energy_decay, 1.0)))
_energies(
    "energy-decay-corrected",
    source=OURS,
    says="For l ≫ d the energy of degree l decays as √d/l².",
    origin=Origin.BEYOND,
)(of_one_seed(partial(_energy_decay, 0.5)))
