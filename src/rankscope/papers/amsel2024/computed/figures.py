"""The figures of what can be computed, each beside what the talk says."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from rankscope.lab.figure import Figure, Mark, Panel, Series, curve
from rankscope.lab.paper import Results


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiments have been run."""
    makers: tuple[tuple[Callable[[Results], Figure], tuple[str, ...]], ...] = (
        (_floors, ("floors",)),
        (_heads, ("growth", "exponents")),
        (_energies, ("energies",)),
        (_random_features, ("random-features",)),
        (_majority, ("majority", "votes-needed")),
        (_softmax, ("softmax",)),
        (_lemmas, ("counts", "representer", "orthogonality")),
    )
    return [
        make(results)
        for make, needed in makers
        if all(f"amsel2024/computed-{name}" in results.tables for name in needed)
    ]


def _floors(results: Results) -> Figure:
    table = _table(results, "floors")
    dims = sorted(table["dim"].unique())
    return Figure(
        id="amsel2024-floors",
        title="The floor under the error, against heads",
        paper_says="Low-rank attention is weaker than full-rank attention even for H ≫ d/r; one full-rank head is exact.",
        caption="Computed, whatever the weights and the training, for arbitrary V. Dots: standard scaling, H = d/r. The "
        "average of both points has error 1/2.",
        panels=[_floor_panel(table[table["dim"] == dim], int(dim)) for dim in _ends(dims)],
        experiments=_names("floors"),
    )


def _floor_panel(table: pd.DataFrame, dim: int) -> Panel:
    curves = table[table["kind"] == "curve"]
    ranks = [
        rank for rank in sorted(curves["rank"].unique()) if rank in _ends(sorted(curves["rank"].unique()), 5)
    ]
    series = [
        Series(f"rank {rank}", *_xy(2.0 ** part["log2_heads"], part["floor_any"]))
        for rank, part in ((rank, curves[curves["rank"] == rank]) for rank in ranks)
    ]
    standard = table[(table["kind"] == "standard") & table["rank"].isin(ranks)]
    dots = Series("H = d/r", *_xy(2.0 ** standard["log2_heads"], standard["floor_any"]), mark=Mark.POINTS)
    return Panel(f"dim {dim}", "heads", "least error", [*series, dots], log_x=True)


def _heads(results: Results) -> Figure:
    growth, exponents = _table(results, "growth"), _table(results, "exponents").sort_values("error")
    rank = int(growth["rank"].min())
    part = growth[growth["rank"] == rank]
    series = [
        Series(
            f"error {error:g}, L = {rows['degree'].iloc[0]}",
            *_xy(rows["dim"], 10.0 ** rows["log10_heads_any"]),
        )
        for error, rows in ((error, part[part["error"] == error]) for error in sorted(part["error"].unique()))
    ]
    standard = np.array(sorted(part["dim"].unique()))
    inverse = 1 / exponents["error"]
    return Figure(
        id="amsel2024-heads",
        title="The least heads not excluded, against dim",
        paper_says="If H ≲ (d/r)^(1/ε) the error is at least ε: the heads needed are polynomial in d/r.",
        caption="Left: arbitrary V; dashed is standard scaling. Right: the degree of that polynomial, the talk's 1/ε "
        "dashed: below 0.05 the talk is modest, above 0.06 the exponent is smaller than it says.",
        panels=(
            Panel(f"least heads of rank {rank}", "dim", "heads",
                  [*series, Series("H = d/r", *_xy(standard, standard / rank), paper=True)], log_x=True, log_y=True),
            Panel("exponent of d/r", "1/ε", "exponent",
                  [Series("L(ε)", *_xy(inverse, exponents["degree"])), Series("1/ε", *_xy(inverse, inverse), paper=True)],
                  log_x=True, log_y=True),
        ),
        experiments=_names("growth", "exponents"),
    )  # fmt: skip


def _energies(results: Results) -> Figure:
    table = _table(results, "energies")
    dims = sorted(table["dim"].unique())
    series = []
    for dim in _ends(dims, 3):
        part = table[table["dim"] == dim]
        series.append(Series(f"dim {dim}", *_xy(part["degree"], part["energy"])))
    largest = table[table["dim"] == dims[-1]]
    far = largest[largest["degree"] > dims[-1]]
    talk = Series(f"d/l², dim {dims[-1]}", *_xy(far["degree"], dims[-1] / far["degree"] ** 2.0), paper=True)
    last = table[table["degree"] == table.groupby("dim")["degree"].transform("max")]
    constant = last["energy"] * last["degree"] ** 2.0
    roots = np.sqrt(np.array(dims, dtype=float))
    return Figure(
        id="amsel2024-energies",
        title="How the energy of sgn⟨x, y⟩ is spread over degrees",
        paper_says="The energy decays slowly: N(d, l)·β_l ~ d/l².",
        caption="Odd degrees; the energies of a dim sum to 1. Right: energy · l² at l = 256 d grows like √d, not like d "
        "(dashed).",
        panels=(
            Panel("energy by degree", "degree l", "share of the energy", [*series, talk], log_x=True, log_y=True),
            Panel("energy · l² for l ≫ d", "dim", "energy · l²",
                  [Series("computed", *_xy(last["dim"], constant)), Series("1.016 √d", *_xy(dims, 1.016 * roots)),
                   Series("d", *_xy(dims, roots**2), paper=True)], log_x=True, log_y=True),
        ),
        experiments=_names("energies"),
    )  # fmt: skip


def _random_features(results: Results) -> Figure:
    table = _table(results, "random-features")
    columns = (
        ("true error of those weights", "true_error", Mark.LINE),
        ("simulated", "simulated", Mark.POINTS),
        ("best weights, same heads", "optimum", Mark.LINE),
        ("independent heads", "independent", Mark.POINTS),
        ("prediction for them", "prediction", Mark.LINE),
        ("bound, attained at rank 1", "infimum", Mark.LINE),
    )
    panels = []
    for dim in sorted(table["dim"].unique()):
        part = table[table["dim"] == dim]
        printed = curve("as published", part, "heads", "printed")
        series = [curve(name, part, "heads", column, mark=mark) for name, column, mark in columns]
        paper = Series(printed.name, printed.x, printed.y, paper=True)
        panels.append(Panel(f"dim {dim}", "heads", "error", [*series, paper], log_x=True))
    return Figure(
        id="amsel2024-random-features",
        title="Random rank-1 heads with the best weights, corrected",
        paper_says="Is the lower bound tight? Pretty much: just use random rank-1 heads.",
        caption="Dashed: as published, with keys that were not brought back to length 1. Those weights have the true "
        "error above it, which simulating the vector problem confirms. Random heads rest at ½(1 − E₁), far above the "
        "bound. Means over seeds with 95% intervals.",
        panels=panels,
        experiments=_names("random-features"),
    )


def _majority(results: Results) -> Figure:
    votes, needed = _table(results, "majority"), _table(results, "votes-needed")
    by_failure = [
        Series(f"failure {failure:g}", *_xy(part["dim"], part["heads"]))
        for failure, part in ((f, needed[needed["failure"] == f]) for f in sorted(needed["failure"].unique()))
    ]
    rule = needed[needed["failure"] == needed["failure"].min()]
    return Figure(
        id="amsel2024-majority",
        title="Majority vote of random rank-1 heads",
        paper_says="A random rank-1 head guesses correctly with probability ~ 1/2 + 1/√d; the majority of many such "
        "heads is correct with high probability.",
        caption="Two points. The heads are right independently only given the points: failure falls like ½√(d/H), not "
        "exponentially. Dashed: d/(4δ²) at the smallest δ.",
        panels=(
            Panel("failure of the vote", "heads", "P[wrong]", _beside_formula(votes, "heads", "exact"),
                  log_x=True, log_y=True),
            Panel("heads needed", "dim", "heads",
                  [*by_failure, Series("d/(4δ²)", *_xy(rule["dim"], rule["rule"]), paper=True)], log_x=True, log_y=True),
        ),
        experiments=_names("majority", "votes-needed"),
    )  # fmt: skip


def _softmax(results: Results) -> Figure:
    table = _table(results, "softmax")
    series = _beside_formula(table, "beta", "formula")
    return Figure(
        id="amsel2024-softmax",
        title="One full-rank softmax head",
        paper_says="A full-rank hardmax head is exact, and softmax with large weights acts like it.",
        caption="Two orthonormal points, X softmax(β Xᵀy) as an attention layer; at β = 0 the error is 1/2. Means over "
        "seeds with 95% intervals.",
        panels=(Panel("error against inverse temperature", "β", "error", series, log_x=True, log_y=True),),
        experiments=_names("softmax"),
    )


def _lemmas(results: Results) -> Figure:
    counts, representer = _table(results, "counts"), _table(results, "representer")
    first = counts[counts["seed"] == counts["seed"].min()]
    columns = (
        ("C(r+l, l)", "slide", Mark.BAR),
        ("found, V ∝ I", "found_identity", Mark.POINTS),
        ("found, random V", "found_any", Mark.POINTS),
    )
    bars = [
        Series(
            name,
            first["shape"].tolist(),
            first[column].astype(float).tolist(),
            mark=mark,
            paper=mark is Mark.BAR,
        )
        for name, column, mark in columns
    ]
    norms = [
        Series(f"dim {dim}", *_xy(part["cut"], part["norm"]))
        for dim, part in (
            (dim, representer[representer["dim"] == dim]) for dim in sorted(representer["dim"].unique())
        )
    ]
    return Figure(
        id="amsel2024-lemmas",
        title="The lemmas of the proof, checked numerically",
        paper_says="A head touches at most C(r+l, l) harmonics of degree l; sgn = T u for some u; the T(Y ⊗ Y) are "
        "orthogonal.",
        caption="Left: harmonics that a random head is not orthogonal to, by quadrature; the slide's count (bars) is "
        "exceeded for arbitrary V. Right: the norm of u when its series is cut; it never settles.",
        panels=(
            Panel("touched harmonics", "dim, rank, degree", "harmonics", bars),
            Panel("norm of u, cut", "cut at degree", "‖u‖", norms, log_x=True, log_y=True),
        ),
        experiments=_names("counts", "representer", "orthogonality"),
    )


def _beside_formula(table: pd.DataFrame, x: str, formula: str) -> list[Series]:
    """For every dim the formula as a line and the simulation as points."""
    series = []
    for dim in sorted(table["dim"].unique()):
        part = table[table["dim"] == dim]
        series += [
            curve(f"{formula}, dim {dim}", part, x, formula),
            curve(f"simulated, dim {dim}", part, x, "simulated", mark=Mark.POINTS),
        ]
    return series


def _table(results: Results, name: str) -> pd.DataFrame:
    return results.tables[f"amsel2024/computed-{name}"]


def _names(*names: str) -> tuple[str, ...]:
    return tuple(f"amsel2024/computed-{name}" for name in names)


def _xy(
    x: Sequence[float] | pd.Series | np.ndarray, y: Sequence[float] | pd.Series | np.ndarray
) -> tuple[list[float], list[float]]:
    """Points in order of x, each once: what is not random may have been computed for several seeds."""
    points = sorted({(float(a), float(b)) for a, b in zip(x, y, strict=True)})
    return [a for a, _ in points], [b for _, b in points]


def _ends(values: Sequence[int], count: int = 2) -> list[int]:
    """`count` of the values, from the first to the last."""
    places = np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int)
    return [values[place] for place in places]
