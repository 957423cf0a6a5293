"""What li2024's tables answer: the rank that training adds."""

import pandas as pd

from rankscope.figures.figure import Mark, Panel, curve
from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results, found
from rankscope.lab.tidy import rows_of
from rankscope.papers.li2024.claims import at_end
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL

RANK = 2
"""What remark 1 says."""


def findings(results: Results) -> list[Finding]:
    """One, of the experiment that all of the paper's figures are of."""
    return found(results, "li2024", {"regime": (_added_rank,)})


def _added_rank(table: pd.DataFrame) -> Finding:
    truncated = at_end(table, "truncation")
    loss = truncated.groupby("rank")["loss"].mean()
    full = loss[loss.index.max()]
    spectrum = rows_of(table, "spectrum")
    sigma = spectrum[spectrum["step"] == spectrum["step"].max()].groupby(["matrix", "place"])["sigma"].mean()
    gaps = [sigma[letter, RANK] / sigma[letter, RANK + 1] for letter in LETTERS.values()]
    enough = loss[RANK] - full <= LIKE_FULL and min(gaps) > 1
    dim = int(loss.index.max())
    return Finding(
        name="added-rank",
        question=Question.UPDATES,
        answer=f"Rank {RANK}, in the paper's transformer." if enough else f"More than rank {RANK} here.",
        sentence="Two patterns decide the label. After training, the third singular value of ΔW is "
        f"{min(gaps):.0f} to {max(gaps):.0f} times smaller than the second in all four matrices. With every update cut from "
        f"rank {dim} to {RANK} the test loss rises by {_added(loss[RANK] - full)}, with rank 1 by {_added(loss[1] - full)}.",
        claims=("li2024.remark1", "li2024.fig1a", "li2024.fig2"),
        figure="li2024-1",
        link="src/rankscope/papers/li2024/README.md",
        seeds=int(table["seed"].nunique()),
        panel=Panel(
            "What training adds, cut to a rank",
            "rank kept of every update",
            "test loss",
            [curve("measured", truncated.astype({"rank": int}), "rank", "loss", mark=Mark.BAR, labels=True)],
        ),
    )


def _added(loss: float) -> str:
    """A difference that is not told from nothing is called so."""
    return "less than 0.001" if abs(loss) < 0.001 else decimals(loss)
