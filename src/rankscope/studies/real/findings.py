"""What the tables of real data answer: the rank that fine-tuning needs, and whether it follows the task."""

import math
from functools import partial

import pandas as pd

from rankscope.figures.figure import Panel
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.lab.seeds import fewest_seeds
from rankscope.lab.tidy import rows_of
from rankscope.studies.real.claims import all_kinds, labelled
from rankscope.studies.real.figures import needed_by_classes
from rankscope.studies.real.measurement import HELD_OUT, SHARE

SUBJECTS = {
    "real": ("sentences", "MiniLM, fine-tuned on rated sentences,"),
    "digits": ("digits", "A small ViT, fine-tuned on digits,"),
}
"""Of each experiment: its data, and what is fine-tuned."""

FOLLOWS = 0.5
"""The exponent in the classes that the claims take as half-way between following the task and not."""


def findings(results: Results) -> list[Finding]:
    """One for the sentences and one for the digits, where they were run with several numbers of classes."""
    return found(results, "li2024", {name: (partial(_needed, name),) for name in SUBJECTS})


def _needed(name: str, table: pd.DataFrame) -> Finding | None:
    if table["classes"].nunique() == 1:
        return None
    data, subject = SUBJECTS[name]
    held_out = all_kinds(labelled(rows_of(table, "needed rank", on=HELD_OUT), "true"))
    fewest, most = held_out["classes"].min(), held_out["classes"].max()
    logs = held_out.groupby(["optimizer", "classes"], sort=False)["needed_log2"].mean()
    optimizers = list(dict.fromkeys(held_out["optimizer"]))
    slopes = [(logs[one, most] - logs[one, fewest]) / math.log2(most / fewest) for one in optimizers]
    needs = "; ".join(
        f"{decimals(2 ** logs[one, fewest])} with {fewest:g} classes, {decimals(2 ** logs[one, most])} with {most:g} ({one})"
        for one in optimizers
    )
    return Finding(
        name=f"{name}-needed",
        question=Question.UPDATES,
        answer=f"On {data} it grows {'with' if min(slopes) >= FOLLOWS else 'more slowly than'} the classes.",
        sentence=f"{subject} needs this rank in every update to keep {SHARE:g} of what it gains on held-out data: {needs}.",
        claims=(f"li2024.{name}-needed",),
        figure=f"li2024-{name}-needed",
        link="docs/real-data.md",
        seeds=fewest_seeds(held_out, ["optimizer", "classes"]),
        panel=Panel(
            "Rank that real data needs",
            "classes",
            "rank",
            [needed_by_classes(one, held_out[held_out["optimizer"] == one]) for one in optimizers],
            log_x=True,
            log_y=True,
        ),
    )
