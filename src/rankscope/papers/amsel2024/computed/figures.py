"""The figures of what can be computed, each beside what the talk says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Makers, Results, drawn

MOST_DEGREE = 7
"""Smaller errors, with polynomials of higher degree, need 10¹² heads and more: drawn with them, the others are one line."""

Draw = Callable[[pd.DataFrame], Sequence[Panel]]


def figures(results: Results) -> list[Figure]:
    """Every figure of which an experiment has been run, with the panels that can be drawn."""
    made: Makers = {
        tuple(f"computed-{name}" for name in draws): (partial(_figure, figure, draws),)
        for figure, draws in FIGURES
    }
    return drawn(results, "amsel2024", made)


def _figure(figure: Figure, draws: Mapping[str, Draw], *tables: pd.DataFrame | None) -> Figure:
    run = zip(draws.values(), tables, strict=True)
    return replace(figure, panels=[one for draw, table in run if table is not None for one in draw(table)])


def _floors(table: pd.DataFrame) -> list[Panel]:
    panels = []
    for dim in _spread(sorted(table["dim"].unique()), 2):
        part = table[(table["dim"] == dim) & (table["values"] == "any")]
        curves = part[part["kind"] == "curve"]
        ranks = _spread(sorted(curves["rank"].unique()), 5)
        series = [
            Series(f"rank {rank}", *_xy(2.0 ** rows["log2_heads"], rows["floor"]))
            for rank, rows in curves[curves["rank"].isin(ranks)].groupby("rank")
        ]
        standard = part[(part["kind"] == "standard") & part["rank"].isin(ranks)]
        dots = Series(
            "H = d/r", *_xy(2.0 ** standard["log2_heads"], standard["floor"]), mark=Mark.POINTS, paper=True
        )
        panels.append(Panel(f"dim {dim}", "heads", "least error", [*series, dots], log_x=True, ordered=True))
    return panels


def _growth(table: pd.DataFrame) -> list[Panel]:
    rank = int(table["rank"].min())
    rows = table[(table["rank"] == rank) & (table["degree"] <= MOST_DEGREE)]
    heads = _by_error(rows, "dim", 10.0 ** rows["log10_heads"])
    standard = Series("H = d/r", *_xy(rows["dim"], rows["dim"] / rank), paper=True)
    return [Panel(f"least heads of rank {rank}", "dim", "heads", [*heads, standard], log_x=True, log_y=True)]


def _scaling(table: pd.DataFrame) -> list[Panel]:
    ratio = int(table["ratio"].max())
    rows = table[(table["ratio"] == ratio) & (table["degree"] <= MOST_DEGREE)]
    over_last = 10.0 ** (rows["log10_heads"] - rows.groupby("error")["log10_heads"].transform("max"))
    title, label = f"least heads where dim = {ratio} · rank", "heads, over those at the last rank"
    return [Panel(title, "rank", label, _by_error(rows, "rank", over_last), log_x=True, log_y=True)]


def _by_error(table: pd.DataFrame, x: str, y: pd.Series) -> list[Series]:
    """A series for every error, which the degree of its polynomial goes with."""
    return [
        Series(f"error {error:g}, L = {part['degree'].iloc[0]}", *_xy(part[x], y[part.index]))
        for error, part in table.groupby("error")
    ]


def _exponents(table: pd.DataFrame) -> list[Panel]:
    inverse = 1 / table["error"]
    computed = Series("L(ε)", *_xy(inverse, table["degree"]))
    talk = Series("1/ε", *_xy(inverse, table["talk"]), paper=True)
    return [Panel("exponent of d/r", "1/ε", "exponent", [computed, talk], log_x=True, log_y=True)]


def _energies(table: pd.DataFrame) -> list[Panel]:
    dims = sorted(table["dim"].unique())
    series = [
        Series(f"dim {dim}", *_xy(part["degree"], part["energy"]))
        for dim, part in table[table["dim"].isin(_spread(dims, 3))].groupby("dim")
    ]
    far = table[(table["dim"] == dims[-1]) & (table["degree"] > dims[-1])]
    talk = Series(f"d/l², dim {dims[-1]}", *_xy(far["degree"], dims[-1] / far["degree"] ** 2.0), paper=True)
    last = table[table["degree"] == table.groupby("dim")["degree"].transform("max")]
    constants = [
        Series("computed", *_xy(last["dim"], last["energy"] * last["degree"] ** 2.0)),
        Series("1.016 √d", *_xy(last["dim"], 1.016 * np.sqrt(last["dim"])), paper=True, like="computed"),
        Series("d", *_xy(last["dim"], last["dim"]), paper=True),
    ]
    return [
        Panel(
            "energy by degree",
            "degree l",
            "share of the energy",
            [*series, talk],
            log_x=True,
            log_y=True,
            ordered=True,
        ),
        Panel("energy · l² for l ≫ d", "dim", "energy · l²", constants, log_x=True, log_y=True),
    ]


def _random_features(table: pd.DataFrame) -> list[Panel]:
    columns = (
        ("true error of those weights", "true_error", Mark.LINE),
        ("best weights, same heads", "optimum", Mark.LINE),
        ("bound, attained at rank 1", "infimum", Mark.LINE),
        ("simulated", "simulated", Mark.POINTS),
    )
    panels = []
    for dim, part in table.groupby("dim"):
        printed = curve("as published", part, "heads", "printed")
        series = [curve(name, part, "heads", column, mark=mark) for name, column, mark in columns]
        paper = Series(printed.name, printed.x, printed.y, paper=True)
        panels.append(Panel(f"dim {dim}", "heads", "error", [*series, paper], log_x=True))
    return [*panels, _independent_heads("independent heads, best weights", table)]


def _many_heads(table: pd.DataFrame) -> list[Panel]:
    return [_independent_heads("more heads, matrix-free", table)]


def _independent_heads(title: str, table: pd.DataFrame) -> Panel:
    series = []
    for dim, part in table.groupby("dim"):
        predicted = curve(f"predicted, dim {dim}", part, "heads", "prediction")
        drawn = curve(f"drawn, dim {dim}", part, "heads", "independent", mark=Mark.POINTS)
        rest = curve(f"½(1 − E₁), dim {dim}", part, "heads", "plateau")
        series += [
            predicted,
            replace(drawn, like=predicted.name),
            replace(rest, like=predicted.name, paper=True, seeds=()),
        ]
    return Panel(title, "heads", "error", series, log_x=True)


def _majority(table: pd.DataFrame) -> list[Panel]:
    series = _beside_formula(table, "heads", "exact")
    return [Panel("failure of the vote", "heads", "P[wrong]", series, log_x=True, log_y=True)]


def _votes_needed(table: pd.DataFrame) -> list[Panel]:
    series = [
        Series(f"failure {failure:g}", *_xy(part["dim"], part["heads"]))
        for failure, part in table.groupby("failure")
    ]
    rarest = table[table["failure"] == table["failure"].min()]
    rule = Series("d/(4δ²)", *_xy(rarest["dim"], rarest["rule"]), paper=True)
    return [Panel("heads needed", "dim", "heads", [*series, rule], log_x=True, log_y=True)]


def _softmax(table: pd.DataFrame) -> list[Panel]:
    series = _beside_formula(table, "beta", "formula")
    return [Panel("error against inverse temperature", "β", "error", series, log_x=True, log_y=True)]


def _counts(table: pd.DataFrame) -> list[Panel]:
    first = table[table["seed"] == table["seed"].min()]
    identity, arbitrary = (first[first["values"] == values] for values in ("identity", "any"))
    series = [
        Series(
            name,
            rows["shape"].tolist(),
            rows[column].astype(float).tolist(),
            mark=mark,
            paper=mark is Mark.BAR,
        )
        for name, rows, column, mark in (
            ("C(r+l, l)", identity, "slide", Mark.BAR),
            ("found, V ∝ I", identity, "found", Mark.POINTS),
            ("found, random V", arbitrary, "found", Mark.POINTS),
        )
    ]
    return [Panel("touched harmonics", "dim, rank, degree", "harmonics", series)]


def _representer(table: pd.DataFrame) -> list[Panel]:
    series = [Series(f"dim {dim}", *_xy(part["cut"], part["norm"])) for dim, part in table.groupby("dim")]
    return [Panel("norm of u, cut", "cut at degree", "‖u‖", series, log_x=True, log_y=True, ordered=True)]


def _orthogonality(table: pd.DataFrame) -> list[Panel]:
    series = [
        Series(f"dim {dim}", *_xy(part["seed"], part["largest_cosine"]), mark=Mark.POINTS)
        for dim, part in table.groupby("dim")
    ]
    return [Panel("largest cosine between T(Y ⊗ Y)", "seed", "cosine", series, log_y=True)]


def _beside_formula(table: pd.DataFrame, x: str, formula: str) -> list[Series]:
    """For every dim the formula as a line and the simulation as points."""
    series = []
    for dim, part in table.groupby("dim"):
        line = curve(f"{formula}, dim {dim}", part, x, formula)
        points = curve(f"simulated, dim {dim}", part, x, "simulated", mark=Mark.POINTS)
        series += [line, replace(points, like=line.name)]
    return series


def _xy(x: pd.Series, y: pd.Series) -> tuple[list[float], list[float]]:
    """Points in order of x, each once: what is not random may have been computed for several seeds."""
    points = sorted({(float(a), float(b)) for a, b in zip(x, y, strict=True)})
    return [a for a, _ in points], [b for _, b in points]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """`count` of the values, from the first to the last."""
    places = np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int)
    return [values[place] for place in places]


FIGURES: Sequence[tuple[Figure, Mapping[str, Draw]]] = (
    (
        Figure(
            "amsel2024-floors",
            "The floor under the error, against heads",
            "Low-rank attention is weaker than full-rank attention even for H ≫ d/r; one full-rank head is exact.",
            "Computed, whatever the weights and the training, for arbitrary V. Circles: standard scaling, H = d/r. The "
            "average of both points has error 1/2.",
            panels=(),
            shared_y=True,
        ),
        {"floors": _floors},
    ),
    (
        Figure(
            "amsel2024-heads",
            "The least heads not excluded, against dim",
            "If H ≲ (d/r)^(1/ε) the error is at least ε: the heads needed are polynomial in d/r.",
            "Left: the least number of heads for arbitrary V and errors of 0.1 or more; dashed: standard scaling. Middle: "
            "the degree of that polynomial; dashed: the talk's 1/ε. For errors up to 0.05 the exponent is larger than the "
            "talk's, from 0.08 on it is smaller. Right: where dim and rank grow together the heads settle; d/r alone decides, "
            "once the rank is large.",
            panels=(),
        ),
        {"growth": _growth, "exponents": _exponents, "scaling": _scaling},
    ),
    (
        Figure(
            "amsel2024-energies",
            "How the energy of sgn⟨x, y⟩ is spread over degrees",
            "The energy decays slowly: N(d, l)·β_l ~ d/l².",
            "Odd degrees; the energies of a dim sum to 1. Right: energy · l² at l = 256 d grows like √d, not like d "
            "(dashed).",
            panels=(),
        ),
        {"energies": _energies},
    ),
    (
        Figure(
            "amsel2024-random-features",
            "Random rank-1 heads with the best weights, corrected",
            "Is the lower bound tight? Pretty much: just use random rank-1 heads.",
            "Dashed: as published, with keys that were not brought back to length 1. The true error of those weights lies "
            "above it, as a simulation of the vector problem confirms. Random heads stay at ½(1 − E₁), far above the bound, "
            "until there are N(d, 3)² of them. Means over seeds with 95% intervals.",
            panels=(),
        ),
        {"random-features": _random_features, "many-heads": _many_heads},
    ),
    (
        Figure(
            "amsel2024-majority",
            "Majority vote of random rank-1 heads",
            "A random rank-1 head guesses correctly with probability ~ 1/2 + 1/√d; the majority of many such heads is "
            "correct with high probability.",
            "Two points. The heads are right independently only given the points: failure falls like ½√(d/H), not "
            "exponentially. Dashed: d/(4δ²) at the smallest δ.",
            panels=(),
        ),
        {"majority": _majority, "votes-needed": _votes_needed},
    ),
    (
        Figure(
            "amsel2024-softmax",
            "One full-rank softmax head",
            "A full-rank hardmax head is exact, and softmax with large weights acts like it.",
            "Two orthonormal points, X softmax(β Xᵀy) as an attention layer; at β = 0 the error is 1/2. Means over seeds "
            "with 95% intervals.",
            panels=(),
        ),
        {"softmax": _softmax},
    ),
    (
        Figure(
            "amsel2024-lemmas",
            "The lemmas of the proof, checked numerically",
            "A head touches at most C(r+l, l) harmonics of degree l; sgn = T u for some u; the T(Y ⊗ Y) are orthogonal.",
            "Harmonics that a random head is not orthogonal to, by quadrature: the slide's count (bars) is exceeded for "
            "arbitrary V. The norm of u when its series is cut never settles. Cosines of T(Y ⊗ Y) are rounding errors.",
            panels=(),
        ),
        {"counts": _counts, "representer": _representer, "orthogonality": _orthogonality},
    ),
)
"""Each figure before its tables, and which experiment draws which of its panels."""
