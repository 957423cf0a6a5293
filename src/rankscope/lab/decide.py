"""How many seeds a claim gets until it is decided, or until there are no more."""

from collections.abc import Callable, Iterator

from rankscope.core import InputError
from rankscope.lab.check import Verdict
from rankscope.lab.claim import Judgement


def seed_counts(first: int, most: int) -> list[int]:
    """With how many seeds a claim is judged: twice as many each time. The more often, the surer must every judgement be.

    >>> seed_counts(8, 50), seed_counts(8, 8)
    ([8, 16, 32, 50], [8])
    """
    if most < first:
        raise InputError(
            f"max_seeds={most}: the scale has {first} seeds already. Give at least as many.",
            argument="max_seeds",
        )
    looks = [first]
    while looks[-1] < most:
        looks.append(min(2 * looks[-1], most))
    return looks


def decide(
    judged: Callable[[int, int], Judgement | None], first: int, most: int
) -> Iterator[tuple[int, Judgement | None]]:
    """Judge with ever more seeds until it is decided: the number of seeds and the judgement, look after look.

    judged   from a number of seeds and the number of looks to the judgement; None where the claim cannot be run
    """
    looks = seed_counts(first, most)
    for seeds in looks:
        found = judged(seeds, len(looks))
        yield seeds, found
        if found is None or found.verdict is not Verdict.UNDECIDED:
            return
