"""What amsel2024's tables answer: whether thin heads replace a full one, and whether depth rescues low rank."""

from functools import partial

import pandas as pd

from rankscope.figures.figure import Panel, curve, paper_line
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.lab.seeds import fewest_seeds
from rankscope.lab.sizes import counted
from rankscope.papers.amsel2024.measurement import ends
from rankscope.papers.amsel2024.published import at_the_end, overflowed, replications

CLEARLY = 2.0
"""Factor between two errors from which the larger is clearly worse; that of the claims."""

HELPS = 1 / 0.95
"""Factor by which depth lowers an error from which it helps; that of the claims."""

PLACE = ["layers", "budget", "rank"]

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
    """The least budget that has every depth, at the rank below full that depth helps the most."""
    full = table["dim"].max()
    layers = sorted(int(count) for count in table["layers"].unique())
    first, last = layers[0], layers[-1]
    for _, rows in table.groupby("budget", sort=True):
        errors = rows.pivot_table(index="rank", columns="layers", values="error").reindex(columns=layers)
        errors = errors.dropna()
        low = errors[errors.index < full]
        if len(layers) < 2 or low.empty or full not in errors.index:
            continue
        helped = low[first] / low[last]
        rank = int(helped.idxmax())
        behind = errors[last][rank] / errors[last][full]
        return Finding(
            name="depth",
            question=Question.DEPTH,
            answer=_rescued(helped[rank], behind),
            sentence=f"On points not seen in training, heads of rank {rank} in {full} dimensions, which gain the most by "
            f"depth, err by {decimals(errors[first][rank])} in {counted(first, 'layer')} and by "
            f"{decimals(errors[last][rank])} in {counted(last, 'layer')}; full rank with as many "
            f"parameters errs by {decimals(errors[last][full])}, {decimals(behind)} times less.",
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


def _rescued(helped: float, behind: float) -> str:
    """What depth does for low rank, by the factor that it helps the most and by how far that stays behind full rank."""
    if behind < CLEARLY:
        return "It does here."
    if helped < HELPS:
        return "No: it does not help."
    return f"Not nearly: it divides the error by {decimals(helped)} at most."


def _memory(results: Results, table: pd.DataFrame) -> Finding | None:
    """Where weights that fit repeated batches err the most beyond that on new points, of the places with the most seeds."""
    table = ends(table)
    whole = table[~overflowed(table)]
    deep = whole[(whole["layers"] > 1) & (whole["rank"] < whole["dim"])]
    seeds = deep.groupby(PLACE)["seed"].transform("nunique")
    deep = deep.assign(fitted=at_the_end(deep))[seeds == seeds.max()]
    means = deep.groupby(PLACE)[["fitted", "error"]].mean()
    if means.empty:
        return None
    worst = means.iloc[[int((means["error"] - means["fitted"]).argmax())]].reset_index().iloc[0]
    layers, rank, fitted, new = (worst[name] for name in ("layers", "rank", "fitted", "error"))
    if new < CLEARLY * fitted:
        return None
    example = deep[(deep[PLACE] == worst[PLACE]).all(axis=1)]
    ended = "last_epoch" in example and bool(example["last_epoch"].notna().all())
    come_out = _come_out(results)
    return Finding(
        name="memory",
        question=Question.DEPTH,
        answer="The published curves of figure 1 show memorized training data.",
        sentence=f"The authors' program repeats the same 100 batches in every epoch and reports training loss. Trained "
        f"this way, {counted(int(layers), 'layer')} of rank {rank:g} {'end at' if ended else 'have'} {decimals(fitted)}"
        f"{'' if ended else ' in their least epoch'}; on new points the {'same' if ended else 'final'} weights have an error "
        f"of {decimals(new)}, where an answer of zero has 1.{come_out}",
        claims=("amsel2024.memory",),
        figure="amsel2024-1",
        link=EXPERIMENTS,
        seeds=_fewest_behind(results) if come_out else fewest_seeds(deep, PLACE),
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


def _fewest_behind(results: Results) -> int:
    """The least number of seeds behind one of the values that are counted."""
    tables = (ends(results.tables[f"amsel2024/{name}"]) for name in ("repeated", "figure1"))
    return min(fewest_seeds(table[~overflowed(table)], PLACE) for table in tables)
