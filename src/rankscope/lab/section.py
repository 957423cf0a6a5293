"""What a page shows of one paper: verdicts, figures, and where they come from."""

from collections.abc import Mapping, Sequence
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
class OtherSeeds:
    """The verdicts of another run on the same claims, by their ids, and which seeds that run had."""

    seeds: range
    judgements: Mapping[str, Judgement]


@dataclass(frozen=True)
class Section:
    """One paper on the page; `suffix` ends its ids, also those of its figures, where the paper has another section.

    `ruled` are the statements of its theorem of which every claim has a verdict. `beside` has the verdicts of other seeds.
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
    beside: OtherSeeds | None = None
