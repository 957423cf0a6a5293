"""What the tables answer: how much rank words need, what predicts it, and whether heads or layers make up for less."""

import pandas as pd

from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.studies.text.claims import CANDIDATES, MAKES_UP, made_up, spread
from rankscope.studies.text.sources import WORDS

PAGE = "docs/text-like-points.md"
NAMES = {
    "participation": "the participation ratio",
    "entropy": "the exponential of the spectrum's entropy",
    "energy": "the directions with 0.9 of the variance",
    "score": "the participation ratio of the score",
    "score_energy": "the directions with 0.9 of the score's variance",
}


def findings(results: Results) -> list[Finding]:
    """Those whose experiment was run."""
    return found(results, "amsel2024", {"text-projections": (_needed, _dimension), "text": (_made_up,)})


def _needed(table: pd.DataFrame) -> Finding | None:
    if WORDS not in set(table["law"]):
        return None
    words, flat = table[table["law"] == WORDS], table[table["law"] == "power 0"]
    kept = {rank: words[words["rank"] == rank]["agreement"].mean() for rank in (32, 64)}
    sphere = flat[flat["rank"] == 64]["agreement"].mean()
    needed, dim, size = (round(float(words[name].mean())) for name in ("needed", "dim", "participation"))
    return Finding(
        name="text",
        question=Question.HEADS,
        answer="Points that look like text are easier than the sphere, and still need most of their dimensions.",
        sentence=f"On MiniLM's word vectors a score of rank 32 keeps {decimals(kept[32])} and one of rank 64 keeps "
        f"{decimals(kept[64])} of the answers, farthest of 15; on isotropic points rank 64 keeps {decimals(sphere)}. "
        f"Words need rank {needed} of {dim} to keep 0.9, with a participation ratio of {size}.",
        claims=("amsel2024.text-easier", "amsel2024.text-half"),
        figure="amsel2024-text-projections",
        link=PAGE,
        seeds=int(words["seed"].nunique()),
    )


def _dimension(table: pd.DataFrame) -> Finding | None:
    if WORDS not in set(table["law"]):
        return None
    spreads = {name: float(spread(table, name).mean()) for name in CANDIDATES}
    best = min(spreads, key=lambda name: spreads[name])
    whole = float(spread(table, "predicted_needed").mean())
    ratio = float((table["needed"] / table[best]).median())
    return Finding(
        name="text-dimension",
        question=Question.HEADS,
        answer=f"Of five effective dimensions, {NAMES[best]} predicts the needed rank best.",
        sentence=f"Over {table['law'].nunique()} laws and sources, words, sentences, states of tokens and digits among them, "
        f"the rank that keeps 0.9 of the answers is {decimals(ratio)} times {NAMES[best]} in the median, with a spread of "
        f"{decimals(spreads[best])} in its logarithm; for the participation ratio the spread is "
        f"{decimals(spreads['participation'])}, and for what theory predicts from the whole spectrum {decimals(whole)}.",
        claims=("amsel2024.text-dimension", "amsel2024.text-needed-predicted"),
        figure="amsel2024-text-dimension",
        link=PAGE,
        seeds=int(table["seed"].nunique()),
    )


def _made_up(table: pd.DataFrame) -> Finding | None:
    heads, depth = made_up(table, "budget"), made_up(table, "layers")
    if not heads or not depth:
        return None
    most, layers = (
        int(table["shape"].str.extract(pattern, expand=False).astype(int).max())
        for pattern in (r"(\d+)$", r"^(\d+)")
    )
    won = {rank: (heads[rank].mean(), depth[rank].mean()) for rank in heads}
    least, greatest = min(won), max(won)
    return Finding(
        name="text-makes-up",
        question=Question.HEADS,
        answer="Neither more heads nor more layers replace rank on words."
        if max(max(both) for both in won.values()) < MAKES_UP
        else "On words, heads or layers replace rank in part.",
        sentence=f"Of what encoders with heads of rank {least} lose against full rank on held-out words, {most} times the "
        f"heads win back {decimals(won[least][0])} and {layers} layers {decimals(won[least][1])}; of what rank {greatest} "
        f"loses, {decimals(won[greatest][0])} and {decimals(won[greatest][1])}.",
        claims=("amsel2024.text-heads-make-up", "amsel2024.text-depth-makes-up"),
        figure="amsel2024-text-trained",
        link=PAGE,
        seeds=int(table["seed"].nunique()),
    )
