"""What garg2022's tables answer: whether many thin heads replace one of full rank where a decoder learns in context."""

import numpy as np
import pandas as pd

from rankscope.figures.figure import Panel, curve
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.lab.seeds import fewest_seeds
from rankscope.measure.interval import limits
from rankscope.papers.garg2022.quantities import (
    doublings,
    end_errors,
    longest_by_size,
    settled_errors,
    transitions,
)

README = "src/rankscope/papers/garg2022/README.md"


def findings(results: Results) -> list[Finding]:
    """One, of the size that has been trained longest; of several the largest."""
    return found(results, "garg2022", {"heads": (_heads,)})


def _heads(table: pd.DataFrame) -> Finding | None:
    """The fewest heads against the most and thinnest."""
    table = max(
        (own for _, own in longest_by_size(table)), key=lambda own: (own["steps"].max(), own["dim"].max())
    )
    errors = end_errors(table)
    few, many = int(table["heads"].min()), int(table["heads"].max())
    if few == many:
        return None
    error = np.exp(np.log(errors["error"]).groupby(errors["heads"]).mean())
    rank = table.groupby("heads")["rank"].first()
    row = errors.iloc[0]
    low, high = limits(doublings(errors, "error"))
    answer = (
        "Where a decoder learns in context, they do, and better."
        if high < 0
        else "Where a decoder learns in context, they do not."
        if low > 0
        else "Where a decoder learns in context, the seeds do not tell."
    )
    return Finding(
        name="in-context",
        question=Question.HEADS,
        answer=answer,
        sentence=f"A decoder of {row['layers']:g} layers learns linear functions in {row['input_dim']:g} dimensions from its "
        f"prompt. After {int(row['step']):,} steps and with {int(row['examples'])} examples, {many} heads of rank "
        f"{rank[many]:g} have an error of {decimals(float(error[many]))}, and {few} of rank {rank[few]:g}, with as many "
        f"parameters, of {decimals(float(error[few]))} (least squares 0, no answer 1); {_when(table, few, many)}.",
        claims=("garg2022.more-heads", "garg2022.more-heads-later", "garg2022.heads-are-time"),
        figure="garg2022-heads",
        link=README,
        seeds=fewest_seeds(errors, "heads"),
        panel=Panel(
            "Heads against rank, learning in context",
            "heads (rank = dim/heads)",
            "error",
            [curve("trained", errors, "heads", "error")],
            log_x=True,
        ),
    )


def _when(table: pd.DataFrame, few: int, many: int) -> str:
    """When the solution appears, and what errors are long after it: whether heads change the training time alone."""
    rows = transitions(table)
    came = rows.groupby("heads")["transition"].median()  # of those that had one
    never = rows["transition"].isna().groupby(rows["heads"]).sum()

    def step(heads: int) -> str:
        late = f", {never[heads]} seeds without it" if never[heads] else ""
        return (
            f"never with {heads}"
            if np.isnan(came[heads])
            else f"by step {came[heads]:,.0f} with {heads}{late}"
        )

    appears = f"the solution appears {step(many)}, and {step(few)}"
    after = settled_errors(table).groupby("heads")["error"].mean()
    if after[[few, many]].isna().any():
        return f"{appears}, and how they end was not seen for both"
    return f"{appears}, and long after it they err by {decimals(float(after[many]))} and {decimals(float(after[few]))}"
