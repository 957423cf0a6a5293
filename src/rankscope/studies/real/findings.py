"""What the tables of real data answer: the rank that fine-tuning adds, and how much of it is needed."""

from rankscope.figures.figure import Panel, curve
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results
from rankscope.lab.tidy import WHOLE, rows_of
from rankscope.studies.real.claims import SHARE
from rankscope.studies.real.measurement import EVERY
from rankscope.studies.real.subjects import SENTENCES
from rankscope.studies.real.training import CLASSES

FEW = 4
"""Directions that are compared with the whole update."""


def findings(results: Results) -> list[Finding]:
    """One, of the published model that was fine-tuned on sentences."""
    subject = SENTENCES
    if subject.experiment not in results.tables:
        return []
    table = results.tables[subject.experiment]
    energy = rows_of(table, "energy rank", share=SHARE, part=EVERY, layer=EVERY)
    directions = energy.groupby("optimizer", sort=False)["energy_rank"].mean()
    truncated = rows_of(table, "truncation")
    whole = rows_of(table, WHOLE).groupby("optimizer", sort=False)["accuracy"].mean()
    few = truncated[truncated["rank"] == FEW].groupby("optimizer", sort=False)["accuracy"].mean()
    counted = " and ".join(f"{decimals(count)} directions with {optimizer}" for optimizer, count in directions.items())
    lost = " and ".join(decimals(whole[optimizer] - few[optimizer]) for optimizer in directions.index)
    return [
        Finding(
            name="real-rank",
            question=Question.UPDATES,
            answer="Many more in a real model, of which few matter."
            if directions.min() > CLASSES
            else f"Rank {CLASSES} in a real model as well.",
            sentence=f"{subject.tuned} on {subject.held_out} of two classes moves in {counted}, by the count that "
            f"holds {SHARE} of ‖ΔW‖² in the median matrix. With every update cut to rank {FEW} it loses {lost} of its accuracy.",
            claims=tuple(
                f"li2024.real-{name}-{optimizer.lower()}"
                for name in ("energy", "rank-2")
                for optimizer in directions.index
            ),
            figure="li2024-real-truncation",
            link="src/rankscope/papers/li2024/README.md",
            seeds=int(table.groupby("optimizer")["seed"].nunique().min()),
            panel=Panel(
                "A real model, its update cut to a rank",
                "rank kept of every update",
                "accuracy",
                [
                    curve(str(optimizer), rows.astype({"rank": int}), "rank", "accuracy", labels=True)
                    for optimizer, rows in truncated.groupby("optimizer", sort=False)
                ],
            ),
        )
    ]
