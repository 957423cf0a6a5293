"""The maps as figures: for each claim of the paper the share of seeds at which it holds, and the predicted border."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, HeatMap, MapLine, Panel
from rankscope.lab import Check, Claim, judge
from rankscope.lab.paper import Results, drawn
from rankscope.studies.phases.border import TEN_TIMES, Border, place, setting
from rankscope.studies.phases.maps import MAPS, NOISE, PhaseMap
from rankscope.studies.phases.shares import MAPPED, checks_of_settings, passes
from rankscope.theory.updates.phases import drowning_noise, outvoting_noise

COLUMNS = 3
MOST_LABELS = 8


def figures(results: Results) -> list[Figure]:
    """One figure for every map that has been run."""
    return drawn(
        results, "li2024", {f"phases-{name}": (partial(_figure, phase),) for name, phase in MAPS.items()}
    )


def _figure(phase: PhaseMap, table: pd.DataFrame) -> Figure:
    border = {
        "noise": " The lines over figure 2 are predictions, not fits: rank two is expected left of both. Beyond the solid one "
        "the second direction of ΔW_K is less than 10 times the rest when the loss is gone; beyond the dashed one the noise "
        "outvotes some sample of training, and the loss never vanishes.",
    }.get(phase.name, "")
    return Figure(
        id=f"li2024-phases-{phase.name}",
        title=f"Where the figures hold (blue: at every seed, orange: at none): {phase.title}",
        paper_says="The theorem speaks of clean data and one setting; the figures show one setting.",
        caption="Colour: the share of seeds at which all checks of a figure hold. Hover over a cell "
        f"to read its numbers and the joint verdict of its seeds.{border}",
        panels=[_panel(phase, table, claim) for claim in MAPPED.values()],
        columns=COLUMNS,
    )


def _panel(phase: PhaseMap, table: pd.DataFrame, claim: Claim) -> Panel:
    x, y = phase.x.seen(table), phase.y.seen(table)
    checks = checks_of_settings(phase, table, claim)
    values = [[float(passes(cell).mean()) for cell in row] for row in checks]
    text = [[_text(claim, cell) for cell in row] for row in checks]
    top = len(y) - 1
    return Panel(
        claim.source, phase.x.label, phase.y.label,
        heat_map=HeatMap(
            x=[f"{value:g}" for value in x],
            y=[f"{value:g}" for value in reversed(y)],
            values=values[::-1],
            text=text[::-1],
            marks=[["" for _ in x] for _ in y],
            levels=(0.0, 1.0),
            scale=True,
            lines=_lines(phase, table) if claim is MAPPED["fig2"] else (),
            here=(phase.x.here_in(table), top - phase.y.here_in(table)),
            label_every=-(-max(len(x), len(y)) // MOST_LABELS),
        ),
    )  # fmt: skip


def _text(claim: Claim, checks: Sequence[Check]) -> str:
    holds = passes(checks)
    verdict = judge(replace(claim, checks=lambda table: checks), pd.DataFrame()).verdict
    return "\n".join(
        [
            f"holds at {holds.sum()} of {len(holds)} seeds; together: {verdict}",
            *(f"{check.what}: {check.mean:.3g} ({check.bound})" for check in checks),
        ]
    )


def _lines(phase: PhaseMap, table: pd.DataFrame) -> list[MapLine]:
    """The two predicted borders over the map of token noise."""
    if phase is not NOISE:
        return []
    levels, shares = phase.x.seen(table), phase.y.seen(table)
    rows = np.linspace(0, len(shares) - 1, 8 * len(shares))
    between = np.interp(rows, range(len(shares)), shares)
    heights = (len(shares) - 1 - rows).tolist()
    borders: dict[str, Border] = {
        "predicted: σ₂/σ₃ = 10 when the loss is gone": partial(drowning_noise, ratio=TEN_TIMES),
        "predicted: noise outvotes a sample": outvoting_noise,
    }
    return [
        MapLine(
            name,
            [place(levels, border(setting(phase, levels[0], float(share)))) for share in between],
            heights,
        )
        for name, border in borders.items()
    ]
