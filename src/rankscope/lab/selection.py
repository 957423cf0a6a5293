"""What to run: which papers, at which scale, and which part of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from rankscope.core import InputError, suggest
from rankscope.lab.claim import Claim
from rankscope.lab.experiment import Experiment, Grid
from rankscope.lab.paper import Paper
from rankscope.lab.scale import Scale


@dataclass(frozen=True)
class Selection:
    """Which papers are run, at which scale, with how many seeds; for some claims, or a piece of one experiment, only.

    only         claims by id, by their short name, or by a glob such as li2024.fig*; here their ids

    seeds        at least two, which have an interval; of one experiment alone, which is not judged, also one

    first_seed   is added to every seed: other draws of everything that is random
    looks        how often the claim is judged while seeds are added
    """

    papers: Sequence[Paper]
    scale: Scale
    seeds: int | None = None
    only: tuple[str, ...] = ()
    experiment: str | None = None
    where: Mapping[str, Collection[str]] = field(default_factory=dict)
    first_seed: int = 0
    looks: int = 1

    def __post_init__(self) -> None:
        claims = [claim for paper in self.papers for claim in paper.claims]
        object.__setattr__(self, "only", claim_ids(self.only, claims))
        least, why = (
            (2, "an interval needs at least two seeds")
            if self.experiment is None
            else (1, "nothing would be run")
        )
        if self.seeds is not None and self.seeds < least:
            raise InputError(f"seeds={self.seeds}: {why}. Use {least} or more.", argument="seeds")
        if self.first_seed < 0:
            raise InputError(f"first_seed={self.first_seed}: use 0 or more.", argument="first_seed")
        names = [e.name for paper in self.papers for e in paper.experiments(self.scale)]
        if self.experiment is not None and self.experiment not in names:
            raise InputError(f"No experiment {self.experiment!r}. {suggest(self.experiment, names)}")
        if self.only and self.experiment is not None:
            raise InputError("only and experiment both say what to run: give one of them.")
        if self.where and self.experiment is None:
            raise InputError("where cuts one experiment's grid: name the experiment.", argument="experiment")

    def claims(self, paper: Paper) -> list[Claim]:
        """The paper's claims that were selected."""
        return [
            claim
            for claim in paper.claims
            if (not self.only or claim.id in self.only) and self.experiment in (None, claim.experiment)
        ]

    def experiments(self, paper: Paper) -> list[Experiment]:
        """The experiments that those claims need, and without a single claim the paper's others too."""
        needed = {claim.experiment for claim in self.claims(paper)}
        chosen = [
            e
            for e in paper.experiments(self.scale)
            if (not self.only or e.name in needed) and self.experiment in (None, e.name)
        ]
        if self.where:
            chosen = [replace(e, grid=e.grid.where(self.where)) for e in chosen]
        return [replace(e, grid=self._seeded(e.grid)) for e in chosen]

    def _seeded(self, grid: Grid) -> Grid:
        """The grid over the selected seeds."""
        seeds = grid.seeds if self.seeds is None else range(self.seeds)
        return Grid(seed=(self.first_seed + seed for seed in seeds), **grid.axes)


def claim_ids(asked: Sequence[str], claims: Sequence[Claim]) -> tuple[str, ...]:
    """The ids of claims that are named by id, by the short name within their paper, or by a glob, in the claims' order."""
    wanted: set[str] = set()
    for name in asked:
        found = {claim.id for claim in claims if fnmatchcase(claim.id, name) or fnmatchcase(claim.name, name)}
        if not found:
            known = [claim.id for claim in claims]
            names = known if "." in name else [claim.name for claim in claims]
            raise InputError(f"No claim {name!r}. {suggest(name, names)} rankscope claims lists them.")
        wanted |= found
    return tuple(claim.id for claim in claims if claim.id in wanted)
