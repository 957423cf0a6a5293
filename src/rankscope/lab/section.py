"""What a page shows of one paper: verdicts, figures, and where they come from."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rankscope.figures.figure import Figure
from rankscope.lab.check import Check
from rankscope.lab.claim import Claim, Judgement
from rankscope.lab.finding import Finding
from rankscope.lab.paper import Paper
from rankscope.lab.replication import Replication
from rankscope.lab.statement import Ruled


@dataclass(frozen=True)
class Unfinished:
    """A claim without a verdict, since cells that it needs have not been run; `so_far` are checks that need none."""

    claim: Claim
    so_far: Sequence[Check]


@dataclass(frozen=True)
class Section:
    """One paper on the page; `suffix` ends its ids, the figures' too, where the paper has another section.

    `ruled` are the statements of its theorem of which every claim has a verdict.
    """

    paper: Paper
    scale: str
    judgements: Sequence[Judgement]
    figures: Sequence[Figure]
    provenance: pd.DataFrame
    notes: Sequence[str] = ()
    unfinished: Sequence[Unfinished] = ()
    suffix: str = ""
    findings: Sequence[Finding] = ()
    replications: Sequence[Replication] = ()
    ruled: Sequence[Ruled] = ()
