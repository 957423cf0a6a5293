"""A finding: part of the answer to a question, as a sentence whose numbers come from tables."""

from dataclasses import dataclass
from enum import StrEnum

from rankscope.figures.figure import Panel


class Question(StrEnum):
    """What a reader wants to know first."""

    UPDATES = "What rank does training add?"
    HEADS = "Do many thin heads replace one of full rank?"
    DEPTH = "Does depth rescue low rank?"


@dataclass(frozen=True)
class Finding:
    """An answer in a few words, the sentence that shows it, the claims that carry it, and where to read on.

    `seeds` is the least number of them behind one of its numbers; `panel` is its picture and `figure` the id of the whole
    figure; `link` is a page of the repository. A finding that `contradicts` a paper is listed apart.
    """

    name: str
    question: Question
    answer: str
    sentence: str
    claims: tuple[str, ...]
    figure: str
    link: str
    seeds: int
    panel: Panel | None = None
    contradicts: bool = False


def decimals(value: float) -> str:
    """A number as a sentence shows it: two digits that say something, and no exponent.

    >>> decimals(0.8634), decimals(0.0034), decimals(5.0), decimals(13.4), decimals(1250.0), decimals(0.0)
    ('0.86', '0.0034', '5', '13', '1,200', '0')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.2g}")
    return f"{rounded:.6f}".rstrip("0").rstrip(".") if abs(rounded) < 10 else f"{rounded:,.0f}"
