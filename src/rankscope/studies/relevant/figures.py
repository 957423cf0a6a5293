"""Rank, spectra, truncation and small neurons against the number of patterns that vote."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, band, curve
from rankscope.lab.paper import Results, drawn
from rankscope.lab.tidy import WHOLE, paired, rows_of
from rankscope.papers.li2024.claims import TWO_GROUPS
from rankscope.papers.li2024.experiments import TASK
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL
from rankscope.studies.relevant.claims import vote
from rankscope.theory.updates.relevant import attention_gains, mean_token_spread, readout_gains

SIDEWAYS = 0.12
"""How far points of equal height are drawn apart, in units of the axis."""


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiments have been run."""
    both = (_rank, partial(_spectrum, results))
    return drawn(results, "li2024", {("relevant", "classes"): both, "relevant": (_truncation, _neurons)})


def _rank(table: pd.DataFrame | None, shared: pd.DataFrame | None) -> Figure | None:
    if table is None:
        return None
    panels = [
        _ranks("k patterns in k classes", "patterns that vote, k", table, "relevant_patterns",
               {"above: k": lambda x: x, "below: k − 1": lambda x: x - 1}),
    ]  # fmt: skip
    if shared is not None:
        most = int(shared["relevant_patterns"].max())
        both = pd.concat([shared, table])
        panels += [
            _ranks("k patterns in two classes", "patterns that vote, k", both[both["classes"] == 2],
                   "relevant_patterns", {"above: k": lambda x: x, "below: two": lambda x: 0 * x + 2}),
            _ranks(f"{most} patterns in c classes", "classes c", both[both["relevant_patterns"] == most],
                   "classes", {f"above: {most}": lambda x: 0 * x + most, "below: c": lambda x: x}),
        ]  # fmt: skip
    return Figure(
        id="li2024-relevant-rank",
        title="What the rank of the update counts",
        paper_says="The rank of the updates is the number of label-relevant patterns.",
        caption="Singular values of at least a tenth of the first, at the end of training; means over seeds with 95% "
        "intervals, drawn side by side. Where patterns share classes, an update that counts patterns stays on k, one that "
        "counts classes leaves it.",
        panels=panels,
    )


def _ranks(
    title: str,
    x_label: str,
    table: pd.DataFrame,
    axis: str,
    lines: Mapping[str, Callable[[np.ndarray], np.ndarray]],
) -> Panel:
    places = np.unique(table[axis].to_numpy(dtype=float))
    series = []
    for place, letter in enumerate(LETTERS.values()):
        rows = rows_of(table, "update", matrix=letter)
        points = curve(f"ΔW_{letter.upper()}", rows, axis, "numerical_rank", mark=Mark.POINTS)
        shift = SIDEWAYS * (place - 1.5)
        series.append(replace(points, x=[float(x) + shift for x in points.x]))
    dashed = [
        Series(name, places.tolist(), line(places).tolist(), paper=True) for name, line in lines.items()
    ]
    return Panel(title, x_label, "measured rank", [*series, *dashed])


def _spectrum(results: Results, table: pd.DataFrame | None, shared: pd.DataFrame | None) -> Figure | None:
    if table is None:
        return None
    both = table if shared is None else pd.concat([table, shared])
    most = int(both["relevant_patterns"].max())
    cases = both[both["relevant_patterns"] == most]
    return Figure(
        id="li2024-relevant-spectrum",
        title=f"Singular values with {most} patterns, at the first step and at the end",
        paper_says="The rank of the updates is the number of label-relevant patterns, k.",
        caption="Each curve over its first value; means over seeds with 95% intervals. Dashed: the closed form of "
        "`theory.updates.relevant`: one direction has all patterns together, c − 1 tell classes apart, k − c tell patterns "
        "within a class apart. That of W_O is for the first step, "
        "that of W_K for the first step of an attention whose readout already knows the classes.",
        panels=(
            _spectra(results, cases, "sigma/first/w_o", "first ΔW_O, on the test set", _readout),
            _spectra(results, cases, "sigma/end/w_o", "trained ΔW_O", None),
            _spectra(results, cases, "sigma/end/w_k", "trained ΔW_K", _attention),
        ),
    )


def _spectra(
    results: Results,
    cases: pd.DataFrame,
    name: str,
    title: str,
    closed_form: Callable[[int, int], list[float]] | None,
) -> Panel:
    measured, dashed = [], []
    for classes, rows in cases.groupby("classes", sort=True):
        patterns = int(rows["relevant_patterns"].iloc[0])
        cells = rows["cell"].unique()
        sigma = np.stack([results.arrays(cell)[name].numpy() for cell in cells])[:, : patterns + 2]
        places = list(range(1, patterns + 3))
        shares = (sigma / sigma[:, :1]).T.tolist()
        measured.append(band(f"{patterns} in {classes} classes", places, shares))
        if closed_form:
            values = np.array(closed_form(patterns, int(str(classes))))
            dashed.append(
                Series(
                    "closed form",
                    places[:-2],
                    (values / values[0]).tolist(),
                    paper=True,
                    like=measured[-1].name,
                )
            )
    return Panel(title, "place of the singular value", "share of the first", [*measured, *dashed], log_y=True)


def _readout(patterns: int, classes: int) -> list[float]:
    case = vote(patterns, classes)
    return readout_gains(
        case, mean_token_spread(case, TASK.tokens, TASK.dim, TASK.token_noise.level)
    ).spectrum(case)


def _attention(patterns: int, classes: int) -> list[float]:
    case = vote(patterns, classes)
    return attention_gains(case).spectrum(case)


def _truncation(table: pd.DataFrame) -> Figure:
    rows = rows_of(table, "truncation")
    shown = rows[rows["rank"] <= rows["relevant_patterns"] + 2].groupby("relevant_patterns", sort=True)
    by_rank = [curve(f"k = {count}", part, "rank", "loss") for count, part in shown]
    whole = rows_of(table, WHOLE)
    rows = rows.assign(needed=rows["loss"] - paired(rows, whole, "loss") > LIKE_FULL)
    needed = 1 + rows.groupby(["relevant_patterns", "cell"])["needed"].sum()
    measured = curve("needed", needed.reset_index(), "relevant_patterns", "needed", mark=Mark.POINTS)
    counts = [float(x) for x in measured.x]
    taken = rows_of(table, "attention taken back")
    back = float((taken["loss"] - paired(taken, whole, "loss")).max())
    return Figure(
        id="li2024-relevant-truncation",
        title="Every update truncated, with k patterns in k classes",
        paper_says="Rank k is like full rank, less is clearly worse.",
        caption=f"Left: test hinge loss. Right: the least rank that adds at most {LIKE_FULL:g} to it. Means over seeds with "
        f"95% intervals. Taking back all that W_Q and W_K learned, and leaving W_V and W_O, adds at most {back:.3f}.",
        panels=(
            Panel("loss against the rank kept", "rank kept in every update", "hinge loss", by_rank, ordered=True),
            Panel("rank needed", "patterns that vote, k", "rank",
                  [measured, Series("k", counts, counts, paper=True),
                   Series("k − 1", counts, [x - 1 for x in counts], paper=True)]),
        ),
    )  # fmt: skip


def _neurons(table: pd.DataFrame) -> Figure:
    tags = (("update", "by ‖Δo_i‖"), ("o", "by ‖o_i‖"))

    def both(column: str) -> list[Series]:
        return [
            curve(name, rows_of(table, "neurons", of=of), "relevant_patterns", column) for of, name in tags
        ]

    apart = both("separation")
    level = Series("threshold of two groups", apart[0].x, [TWO_GROUPS] * len(apart[0].x), paper=True)
    return Figure(
        id="li2024-relevant-neurons",
        title="Neurons that stay small, with k patterns in k classes",
        paper_says="A constant fraction of the neurons has a much smaller magnitude.",
        caption="Small: in the lower of the two best groups. Means over seeds with 95% intervals. The halves of a single "
        "normal group have 0.64 of the variance between them.",
        panels=(
            Panel(
                "fraction of small neurons",
                "patterns that vote, k",
                "fraction",
                both("small_fraction"),
                most=1.0,
            ),
            Panel(
                "are there two groups?",
                "patterns that vote, k",
                "share of variance between them",
                [*apart, level],
                most=1.0,
            ),
        ),
    )
