"""A statement of a theorem, and what claims and proofs say of it together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rankscope.lab.check import Verdict
from rankscope.lab.claim import Judgement


class Ruling(StrEnum):
    """What is known of a statement."""

    HOLDS = "holds"
    NARROWED = "holds under a condition that the paper does not print"
    DISPROVED = "contradicted (proof)"
    REFUTED = "contradicted (measured)"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Statement:
    """What a theorem says, and who decides it.

    claims      names of the claims that measure it where the printed conditions are met
    narrowed    names of the claims that measure it where `condition` is met besides, which the paper does not print
    proof       where it is proved that the statement cannot be; empty where nothing is proved
    conditions  which conditions the measured settings meet
    """

    source: str
    says: str
    claims: Sequence[str]
    why: str
    conditions: str = ""
    narrowed: Sequence[str] = ()
    condition: str = ""
    proof: str = ""


@dataclass(frozen=True)
class Misprint:
    """What a paper prints, and how it is read here."""

    source: str
    printed: str
    read: str


@dataclass(frozen=True)
class Ruled:
    """A statement with its ruling and the judgements that it comes from."""

    statement: Statement
    ruling: Ruling
    judgements: Sequence[Judgement]


def rule(statement: Statement, judgements: Mapping[str, Judgement]) -> Ruled | None:
    """The ruling that follows from this run's verdicts and what is proved; None where a claim has no verdict.

    A statement that holds as printed holds. One that does not is narrowed where it holds under a further condition; else it
    is contradicted, by proof if there is one. A proof against what was measured to hold decides nothing: one of both is wrong.
    """
    names = [*statement.claims, *statement.narrowed]
    if any(name not in judgements for name in names):
        return None
    found = [judgements[name] for name in names]
    printed = _together(judgements[name].verdict for name in statement.claims)
    further = _together(judgements[name].verdict for name in statement.narrowed)
    if statement.proof and printed is Verdict.HOLDS:
        ruling = Ruling.UNDECIDED
    elif printed is Verdict.HOLDS:
        ruling = Ruling.HOLDS
    elif further is Verdict.HOLDS and (printed is Verdict.FAILS or statement.proof):
        ruling = Ruling.NARROWED
    elif statement.proof:
        ruling = Ruling.DISPROVED
    else:
        ruling = Ruling.REFUTED if printed is Verdict.FAILS else Ruling.UNDECIDED
    return Ruled(statement, ruling, found)


def _together(verdicts: Iterable[Verdict]) -> Verdict:
    """Fails if one fails, holds if all hold; of none nothing is decided."""
    found = set(verdicts)
    if Verdict.FAILS in found:
        return Verdict.FAILS
    return Verdict.HOLDS if found == {Verdict.HOLDS} else Verdict.UNDECIDED
