"""The maps as figures: for each claim of the paper the share of seeds at which it holds, and the predicted border."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rankscope.lab import Claim, judge
from rankscope.lab.figure import Figure, HeatMap, MapLine, Panel
from rankscope.lab.paper import Results
from rankscope.papers.li2024.phases.border import TEN_TIMES, crossings, predicted_ratios
from rankscope.papers.li2024.phases.maps import MAPS, NOISE, PhaseMap
from rankscope.papers.li2024.phases.shares import MAPPED, passes, settings

COLUMNS = 3
MOST_LABELS = 8


def figures(results: Results) -> Sequence[Figure]:
    """One figure for every map that has been run."""
    tables = {name: results.tables.get(f"li2024/phases_{name}") for name in MAPS}
    return [_figure(MAPS[name], table) for name, table in tables.items() if table is not None]


def _figure(phase: PhaseMap, table: pd.DataFrame) -> Figure:
    border = {
        "noise": " The lines are predictions, not fits: where σ₂/σ₃ of ΔW_K falls to 10 (solid; figure 2 asks for 10) and to "
        "1, where the second direction has drowned (dashed).",
    }.get(phase.name, "")
    return Figure(
        id=f"li2024-phases-{phase.name}",
        title=f"Where the figures hold: {phase.title}",
        paper_says="The theorem speaks of clean data and one setting; the figures show one setting.",
        caption="Share of seeds at which a figure's checks all hold: blue at all, orange at none. Hover a cell for its "
        f"figures and the verdict of its seeds together.{border}",
        panels=[_panel(phase, table, claim) for claim in MAPPED.values()],
        experiments=(f"li2024/phases_{phase.name}",),
        columns=COLUMNS,
    )


def _panel(phase: PhaseMap, table: pd.DataFrame, claim: Claim) -> Panel:
    x, y = phase.x.seen(table), phase.y.seen(table)
    values, text = np.zeros((len(y), len(x))), [["" for _ in x] for _ in y]
    for row, column, part in settings(phase, table):
        judgement = judge(claim, part)
        holds = passes(judgement.checks)
        values[row, column] = holds.mean()
        counted = f"holds at {holds.sum()} of {len(holds)} seeds; together: {judgement.verdict}"
        text[row][column] = "\n".join([counted, *map(str, judgement.checks)])
    top = len(y) - 1
    return Panel(
        claim.source, phase.x.label, phase.y.label,
        heat_map=HeatMap(
            x=[f"{value:g}" for value in x],
            y=[f"{value:g}" for value in reversed(y)],
            values=values[::-1].tolist(),
            text=text[::-1],
            marks=[["" for _ in x] for _ in y],
            levels=(0.0, 1.0),
            lines=_lines(phase, table) if claim is MAPPED["fig2"] else (),
            here=(phase.x.here_in(table), top - phase.y.here_in(table)),
            label_every=-(-max(len(x), len(y)) // MOST_LABELS),
        ),
    )  # fmt: skip


def _lines(phase: PhaseMap, table: pd.DataFrame) -> list[MapLine]:
    if phase is not NOISE:
        return []
    ratios = predicted_ratios(phase, table)[::-1]
    rows = [float(row) for row in range(len(ratios))]
    return [
        MapLine(f"predicted: σ₂/σ₃ = {level:g}", crossings(ratios, level).tolist(), rows) for level in (TEN_TIMES, 1.0)
    ]
