"""What amsel2024's tables answer: whether thin heads replace a full one, and whether depth rescues low rank."""

from functools import partial

import pandas as pd

from rankscope.figures.figure import Panel, curve, paper_line
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.lab.seeds import fewest_seeds
from rankscope.lab.sizes import counted
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import overflowed, replications

CLEARLY = 2.0
"""Factor between two errors from which the larger is clearly worse; that of the claims."""

EXPERIMENTS = "src/rankscope/papers/amsel2024/EXPERIMENTS.md"


def findings(results: Results) -> list[Finding]:
    """The findings of the tables that are there and have every row they need."""
    memory = partial(_memory, results)
    return found(
        results, "amsel2024", {"two-points": (_thin_heads,), "figure1": (_depth,), "repeated": (memory,)}
    )


def _thin_heads(table: pd.DataFrame) -> Finding | None:
    """The least budget, where all heads together have as many parameters as one of full rank."""
    budget, full = table["budget"].min(), table["rank"].max()
    rows = table[table["budget"] == budget]
    thin = rows[rows["rank"] == rows["rank"].min()]
    one = rows[(rows["rank"] == full) & (rows["heads"] == budget)]
    if one.empty or thin["rank"].iloc[0] == full:
        return None
    floor, heads, rank = (thin[name].iloc[0] for name in ("floor", "heads", "rank"))
    replaced = floor <= one["error"].mean()
    wider = table[(table["budget"] == table["budget"].max()) & (table["rank"] == rank)]
    more = (
        f" With {wider['budget'].iloc[0] / budget:g} times the parameters the bound is still {wider['floor'].iloc[0]:.3f}."
        if wider["budget"].iloc[0] > budget
        else ""
    )
    return Finding(
        name="thin-heads",
        question=Question.HEADS,
        answer="Not shown here." if replaced else "No, whatever their weights.",
        sentence=f"On the nearest of two points in {full} dimensions, {heads} heads of rank {rank} cannot get below an error "
        f"of {floor:.3f} (theorem 2, computed); trained ones reach {thin['error'].mean():.3f}. One head of rank {full}, with "
        f"as many parameters, is exact in theory and reaches {one['error'].mean():.3f} by the same training.{more}",
        claims=("amsel2024.floor", "amsel2024.one-layer", "amsel2024.budget"),
        figure="amsel2024-floor",
        link="docs/theory.md",
        seeds=fewest_seeds(rows, "rank"),
        panel=Panel(
            "Thin heads against one of full rank",
            "rank of a head (heads = dim/rank)",
            "error",
            [
                curve("trained", rows, "rank", "error"),
                paper_line(
                    "no weights do better (theorem 2)", rows.groupby("rank")["floor"].first(), like="trained"
                ),
            ],
            log_x=True,
        ),
    )


def _depth(table: pd.DataFrame) -> Finding | None:
    """The least budget that has every depth, at the middle rank below full."""
    full = table["dim"].max()
    layers = sorted(int(count) for count in table["layers"].unique())
    for _, rows in table.groupby("budget", sort=True):
        low = sorted(rank for rank in rows["rank"].unique() if rank < full)
        if len(layers) < 2 or not low:
            return None
        rank = low[len(low) // 2]
        errors = rows.groupby(["layers", "rank"])["error"].mean()
        if not all((depth, at) in errors for depth in layers for at in (rank, full)):
            continue
        first, last = layers[0], layers[-1]
        behind = errors[last, rank] / errors[last, full]
        return Finding(
            name="depth",
            question=Question.DEPTH,
            answer="No: it helps a little." if behind >= CLEARLY else "It does here.",
            sentence=f"On points not seen in training, heads of rank {rank} in {full} dimensions err by "
            f"{decimals(errors[first, rank])} in {counted(first, 'layer')} and by {decimals(errors[last, rank])} in "
            f"{counted(last, 'layer')}; full rank with as many parameters errs by {decimals(errors[last, full])}, "
            f"{decimals(behind)} times less.",
            claims=("amsel2024.depth-helps", "amsel2024.depth-behind"),
            figure="amsel2024-1",
            link=EXPERIMENTS,
            seeds=fewest_seeds(rows, ["layers", "rank"]),
            panel=Panel(
                "Depth against rank, on new points",
                "rank of a head (heads = dim/rank)",
                "error (1: no answer)",
                [
                    curve(counted(depth, "layer"), rows[rows["layers"] == depth], "rank", "error")
                    for depth in layers
                ],
                log_x=True,
                ordered=True,
            ),
        )
    return None


def _memory(results: Results, table: pd.DataFrame) -> Finding | None:
    """Where weights that fit repeated batches err the most beyond that on new points, of the places with the most seeds."""
    table = ends(table)
    deep = table[(table["layers"] > 1) & (table["rank"] < table["dim"]) & ~overflowed(table)]
    seeds = deep.groupby(["layers", "budget", "rank"])["seed"].transform("nunique")
    deep = deep[seeds == seeds.max()]
    means = deep.groupby(["layers", "budget", "rank"])[["best_epoch", "error"]].mean()
    if means.empty:
        return None
    worst = means.iloc[[int((means["error"] - means["best_epoch"]).argmax())]].reset_index().iloc[0]
    layers, rank, fitted, new = (worst[name] for name in ("layers", "rank", "best_epoch", "error"))
    if new < CLEARLY * fitted:
        return None
    return Finding(
        name="memory",
        question=Question.DEPTH,
        answer="The published curves of figure 1 show memorized training data.",
        sentence=f"The authors' program repeats the same 100 batches in every epoch and reports training loss. Trained "
        f"this way, {counted(int(layers), 'layer')} of rank {rank:g} end at {decimals(fitted)}; on new points the same "
        f"weights have an error of {decimals(new)}, where an answer of zero has 1.{_come_out(results)}",
        claims=("amsel2024.memory",),
        figure="amsel2024-1",
        link=EXPERIMENTS,
        seeds=fewest_seeds(deep, ["layers", "budget", "rank"]),
        contradicts=True,
    )


def _come_out(results: Results) -> str:
    """How many published values of figure 1 come out by either way of training; nothing where our sizes are others."""
    counts = {
        one.experiment.partition("/")[2]: f"{len(one.agreeing)} of {len(one.compared)}"
        for one in replications(results)
        if one.figure == "amsel2024-1"
    }
    if not counts.keys() >= {"repeated", "figure1"}:
        return ""
    return (
        f" We reproduce {counts['repeated']} published values as training loss on repeated batches, and "
        f"{counts['figure1']} as error after training on fresh ones."
    )
