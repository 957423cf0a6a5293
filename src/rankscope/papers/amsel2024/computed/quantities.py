"""What each deterministic experiment computes: a cell in, records out. Records have the talk's quantity and the true one."""

import math
from fractions import Fraction
from typing import get_args

import numpy as np

from rankscope.core.streams import stream
from rankscope.lab import Cell
from rankscope.lab.experiment import Scalar
from rankscope.papers.amsel2024.computed import lemmas
from rankscope.papers.amsel2024.computed.computation import Records
from rankscope.papers.amsel2024.computed.settings import Dim, Errors, Growth, Ratio, setting_of
from rankscope.theory.heads import counting, expansions, lower_bound, majority, regimes
from rankscope.theory.heads.inputs import Values
from rankscope.theory.heads.rank_one import single_head_success

VALUES: tuple[Values, ...] = get_args(Values)
SHAPES = ((3, 1, 3), (4, 2, 1), (4, 2, 3), (5, 2, 3), (5, 3, 1), (5, 3, 3), (6, 2, 3), (6, 3, 1), (6, 3, 3))
"""(dim, rank, degree) that quadrature can count."""
ERRORS = (Fraction(1, 5), Fraction(3, 20), Fraction(1, 10), Fraction(1, 20))
FAILURES = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 100))
REGIME_CONSTANTS = (1.0, 0.18)
"""c′ and C′ of Theorem 2's second regime, which the talk leaves open; the bound cannot give C′ > ½(1 − 2/π) = 0.1817."""


def energies(cell: Cell) -> Records:
    """E_l of sgn over odd degrees from 1 to far beyond dim, two to an octave."""
    dim = setting_of(cell, Dim).dim
    octaves = np.arange(0, math.log2(256 * dim) + 0.1, 0.5)
    degrees = sorted({2 * round(2**octave / 2) + 1 for octave in octaves} | {1})
    return [{"degree": degree, "energy": expansions.sign_energy(dim, degree)} for degree in degrees]


def representer(cell: Cell) -> Records:
    """Norm of the slides' u when its series is cut at a degree."""
    dim = setting_of(cell, Dim).dim
    return [{"cut": cut, "norm": expansions.representer_norm(dim, cut)} for cut in (13, 25, 50, 100)]


def floors(cell: Cell) -> Records:
    """LB over ranks and heads: curves to draw, standard scaling at every rank, and Theorem 2's first regime."""
    dim = setting_of(cell, Dim).dim
    curves = [(rank, 2**power) for rank in _powers_of_two(dim) for power in range(33)]
    standard = [(rank, dim // rank) for rank in range(1, dim + 1)]
    high_accuracy = [
        (rank, 2 ** math.floor(regimes.high_accuracy_exponent(dim, rank)))
        for rank in range(1, dim - 2)
        if regimes.high_accuracy_exponent(dim, rank) >= 0
    ]
    kinds = {"curve": curves, "standard": standard, "high-accuracy": high_accuracy}
    return [
        {
            "kind": kind,
            "rank": rank,
            "log2_heads": math.log2(heads),
            "values": values,
            "floor": lower_bound.error_floor(dim, rank, heads, values),
        }
        for kind, shapes in kinds.items()
        for rank, heads in shapes
        for values in VALUES
    ]


def growth(cell: Cell) -> Records:
    """The least heads against dim at several errors, beside the heads that Theorem 2's second regime excludes."""
    setting = setting_of(cell, Growth)
    rank = setting.rank
    doublings = int(math.log2(setting.greatest_dim / 64))
    return [
        {
            "dim": dim,
            **_least_heads(dim, rank, error),
            "regime_log2_heads": regimes.high_dimensional_exponent(
                dim, rank, float(error), *REGIME_CONSTANTS
            ),
        }
        for error in ERRORS
        for dim in (64 * 2**k for k in range(doublings + 1))
    ]


def scaling(cell: Cell) -> Records:
    """The least heads where dim and rank double together, their ratio fixed."""
    setting = setting_of(cell, Ratio)
    doublings = int(math.log2(setting.greatest_rank / 8))
    return [
        {"rank": rank, **_least_heads(setting.ratio * rank, rank, error)}
        for error in ERRORS
        for rank in (8 * 2**k for k in range(doublings + 1))
    ]


def _least_heads(dim: int, rank: int, error: Fraction) -> dict[str, Scalar]:
    """log₁₀ of the least heads for an error, whatever V, beside the degree L(ε) that they should grow with."""
    return {
        "error": float(error),
        "degree": regimes.head_growth_exponent(float(error)),
        "log10_heads": math.log10(lower_bound.min_heads(dim, rank, error, "any")),
    }


def exponents(cell: Cell) -> Records:
    """L(ε), beside the talk's 1/ε."""
    return [
        {"error": error, "degree": regimes.head_growth_exponent(error), "talk": 1 / error}
        for error in setting_of(cell, Errors).errors
    ]


def counts(cell: Cell) -> Records:
    """Harmonics that one random head touches, counted by quadrature, beside the formulas and the slide."""
    formulas = {"identity": counting.touched_dim, "any": counting.touched_dim_any_values}
    return [
        {
            "shape": f"{dim},{rank},{degree}",
            "values": values,
            "found": lemmas.touched_dim_numerically(
                dim, rank, degree, values, stream(cell.seed, "counts", values, dim, rank, degree)
            ),
            "formula": formulas[values](dim, rank, degree),
            "slide": counting.slide_touched_dim(rank, degree),
            "rank_more": counting.touched_dim(dim, rank + 1, degree),
        }
        for dim, rank, degree in SHAPES
        for values in VALUES
    ]


def orthogonality(cell: Cell) -> Records:
    """The Gram matrix of T(Y ⊗ Y): its largest cosine, and its diagonal against λ_l⁴."""
    records: Records = []
    for dim, degrees in ((3, (1, 3, 5)), (4, (1, 3))):
        gram = lemmas.sign_transform_gram(dim, degrees, stream(cell.seed, "gram", dim))
        length = np.sqrt(np.diag(gram))
        cosines = gram / np.outer(length, length) - np.eye(len(gram))
        expected = np.concatenate(
            [
                np.full(counting.harmonic_dim(dim, degree), expansions.sign_eigenvalue(dim, degree) ** 2)
                for degree in degrees
            ]
        )
        records.append(
            {
                "dim": dim,
                "largest_cosine": float(np.abs(cosines).max()),
                "norm_error": float(np.abs(length / expected - 1).max()),
            }
        )
    return records


def heads_for_vote(cell: Cell) -> Records:
    """Heads for a failure rate δ beside d/(4δ²), and one head's advantage beside 1/√d."""
    dim = setting_of(cell, Dim).dim
    return [
        {
            "failure": float(failure),
            "heads": majority.heads_for_failure(dim, failure),
            "rule": dim / (4 * float(failure) ** 2),
            "advantage": (single_head_success(dim) - 0.5) * math.sqrt(dim),
        }
        for failure in FAILURES
    ]


def _powers_of_two(dim: int) -> list[int]:
    return [2**k for k in range(int(math.log2(dim)))]
