"""Training held to a rank against full training: loss by step, final loss and steps by rank."""

import math
from functools import partial

import numpy as np
import pandas as pd

from rankscope.figures.figure import Figure, Mark, Panel, Series, band
from rankscope.lab.paper import Results, drawn
from rankscope.lab.tidy import rows_of
from rankscope.papers.li2024.experiments import TRAIN
from rankscope.papers.li2024.measurement import CONVERGED_LOSS, CONVERGED_OVER
from rankscope.studies.lora.experiments import FULL
from rankscope.studies.lora.rates import CONVENTIONS, at_equal_rate, best_rates, halves

AFTERWARDS = "full training, truncated afterwards"
QUARTILES = (0.25, 0.75)
CIRCLES = f"Circles: the loss of some seeds never falls under {CONVERGED_LOSS:g}; the mean beside them is over the others."


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiments have been run."""
    lora, relevant = partial(_lora, results), partial(_relevant, results)
    return drawn(results, "li2024", {"lora": (lora,), "lora-parts": (_parts,), "lora-relevant": (relevant,)})


def _lora(results: Results, table: pd.DataFrame) -> Figure:
    rates = best_rates(halves(table)[0])
    best = ", ".join(f"{rate:g} ({_held(rank)})" for rank, rate in rates.items())
    held = _by_rank("held from the start", at_equal_rate(table), "loss")
    return Figure(
        id="li2024-lora",
        title="Training held to a rank from the start (LoRA), two patterns",
        paper_says="The updates are of rank 2, the number of label-relevant patterns.",
        caption="W = W_0 + BA for all four matrices, B = 0, A normal of variance 1/rank. Left and middle: η = "
        f"{TRAIN.learning_rate:g}. Left: over {CONVERGED_OVER} batches, median over the judged seeds and their middle half. "
        f"Otherwise means with 95% intervals; the greatest test loss of a rank held is {max(held.y[:-1]):.4f}. Right: best of "
        f"{', '.join(f'{rate:g}' for rate in sorted(table['learning_rate'].unique()))}, chosen on other seeds: {best}.",
        panels=(
            Panel("training loss", "step", "hinge loss", _by_step(results, at_equal_rate(table)), ordered=True),
            Panel("test loss at the end", "rank", "hinge loss", [held, *_afterwards(results, 2, held)]),
            Panel(f"steps until the loss is under {CONVERGED_LOSS:g}", "rank held", "steps",
                  [one for name, rows in CONVENTIONS.items() for one in steps_reached(name, rows(table))]),
        ),
    )  # fmt: skip


def _relevant(results: Results, table: pd.DataFrame) -> Figure:
    counts = sorted({int(count) for count in table["relevant_patterns"]})
    by_count = {count: table[table["relevant_patterns"] == count] for count in counts}
    panels = []
    for count, rows in by_count.items():
        held = _by_rank("held from the start", rows, "loss")
        panels.append(Panel(f"test loss with {count} patterns in {count} classes", "rank", "hinge loss",
                            [held, *_afterwards(results, count, held)]))  # fmt: skip
    steps = [one for count, rows in by_count.items() for one in steps_reached(f"{count} patterns", rows)]
    return Figure(
        id="li2024-lora-relevant",
        title="Training held to a rank, with k patterns in k classes",
        paper_says="The rank of the updates is the number of label-relevant patterns.",
        caption=f"η = {TRAIN.learning_rate:g}; means over seeds with 95% intervals. {CIRCLES}",
        panels=[
            *panels,
            Panel(f"steps until the loss is under {CONVERGED_LOSS:g}", "rank held", "steps", steps),
        ],
    )


def _parts(table: pd.DataFrame) -> Figure:
    table = table.sort_values(["adapted", "adapter_rank"], kind="stable")
    table = table.assign(
        which=[f"{part}: {rank}" for part, rank in zip(table["adapted"], table["adapter_rank"], strict=True)]
    )
    losses = _by_rank("measured", table, "loss", "which")
    steps = steps_reached("measured", table, "which")
    return Figure(
        id="li2024-lora-parts",
        title="Some of the weights held to a rank, two patterns",
        paper_says="All four updates are of rank 2.",
        caption=f"η = {TRAIN.learning_rate:g}; means over seeds with 95% intervals. What is not held is trained in full. "
        f"{CIRCLES}",
        panels=[
            Panel("test loss at the end", "matrices held: rank", "hinge loss", [losses]),
            Panel(f"steps until the loss is under {CONVERGED_LOSS:g}", "matrices held: rank", "steps", steps),
        ],
    )


def _held(rank: str) -> str:
    return rank if rank == FULL else f"rank {rank}"


def _by_step(results: Results, table: pd.DataFrame) -> list[Series]:
    """The training loss of every rank, averaged over a few batches: the median seed, and the middle half of them."""
    series = []
    by_rank = dict(list(table.groupby("adapter_rank", sort=False)))
    for rank in sorted(by_rank, key=lambda rank: rank == FULL):
        rows = by_rank[rank]
        losses = np.stack([results.arrays(cell)["losses"].numpy() for cell in rows["cell"]])
        smooth = np.lib.stride_tricks.sliding_window_view(losses, CONVERGED_OVER, axis=1).mean(-1)
        steps = np.arange(smooth.shape[1]) + (CONVERGED_OVER + 1) / 2
        low, high = np.quantile(smooth, QUARTILES, axis=0).tolist()
        series.append(Series(_held(str(rank)), steps.tolist(), np.median(smooth, axis=0).tolist(), low, high))
    return series


def _by_rank(name: str, table: pd.DataFrame, column: str, by: str = "adapter_rank") -> Series:
    """The mean of a column at every rank, or by what else is held; full training last."""
    labels = sorted(dict.fromkeys(table[by]), key=lambda label: label == FULL)
    by_rank = [table.loc[table[by] == label, column].tolist() for label in labels]
    return band(name, labels, by_rank, Mark.POINTS)


def steps_reached(name: str, table: pd.DataFrame, by: str = "adapter_rank") -> list[Series]:
    """Steps over the seeds that reach the loss, at every rank or by what else is held; a circle where some never do."""
    steps = int(table["step"].max())
    reached = table["converged_step"] < steps
    means = _by_rank(name, table.assign(steps=table["converged_step"].where(reached)), "steps", by)
    found = [[value for value in values if not math.isnan(value)] or [math.nan] for values in means.seeds]
    short = list(dict.fromkeys(str(rank) for rank in table.loc[~reached, by]))
    series = [band(name, means.x, found, Mark.POINTS)]
    if short:
        label = f"{name}: not reached in {steps} steps"
        cap = [float(steps)] * len(short)
        series.append(Series(label, short, cap, mark=Mark.POINTS, paper=True, like=name))
    return series


def _afterwards(results: Results, count: int, held: Series) -> list[Series]:
    """The loss of full training with every update truncated, at the ranks of `held`, where it was measured."""
    table = results.tables.get("li2024/relevant")
    if table is None or count not in set(table["relevant_patterns"]):
        return []
    rows = rows_of(table, "truncation", relevant_patterns=count).astype({"rank": int})
    by_rank = {str(rank): part["loss"].tolist() for rank, part in rows.groupby("rank")}
    labels = [str(x) for x in held.x if x in by_rank]
    return [band(AFTERWARDS, labels, [by_rank[label] for label in labels], Mark.POINTS)]
