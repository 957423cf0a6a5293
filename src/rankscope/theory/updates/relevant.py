"""The first update with k relevant patterns in c classes, in closed form. Sees no model and no data.

The patterns y = 1 … k stand for the samples they win: the mean token of such a sample is

    x̄_y = α μ_y + β Σ_{j≠y} μ_j + ρ Σ_irrelevant μ_j        β = κ/(k−1),  ρ = (1−α−κ)/(M−k)

and class c(y) is pulled up by 1, every other down by 1/(c−1). Whatever is linear in these and treats patterns of a class,
and classes, alike has three singular values: one direction has all patterns together, c−1 tell the classes apart, k−c
tell apart the patterns within a class. So an update has rank k, unless one of the three is negligible.
"""

import math
from typing import NamedTuple

from rankscope.core import InputError

NEGLIGIBLE = 0.1
"""A singular value under this share of the first does not count."""


class Vote(NamedTuple):
    """The data model's numbers: M patterns, of which k vote for c classes of k/c patterns each; shares α and κ."""

    patterns: int
    relevant_patterns: int
    classes: int
    relevant: float
    confusion: float

    @property
    def loser(self) -> float:
        """β, the share of one losing pattern."""
        return self.confusion / (self.relevant_patterns - 1)

    @property
    def other(self) -> float:
        """ρ, the share of one irrelevant pattern."""
        return (1 - self.relevant - self.confusion) / (self.patterns - self.relevant_patterns)

    @property
    def gap(self) -> float:
        """α − β."""
        return self.relevant - self.loser

    def checked(self) -> "Vote":
        """Itself, if the formulas hold for it."""
        if not 2 <= self.classes <= self.relevant_patterns < self.patterns:
            raise InputError(f"{self}: needs 2 ≤ classes ≤ relevant_patterns < patterns.")
        if self.relevant_patterns % self.classes:
            raise InputError(f"{self}: needs classes of equal size. Choose a divisor of relevant_patterns.")
        if not (0 <= self.confusion < self.relevant and self.relevant + self.confusion <= 1):
            raise InputError(f"{self}: needs 0 ≤ confusion < relevant with a sum ≤ 1.")
        return self


class Gains(NamedTuple):
    """Singular values up to a common factor: `together` once, `between` c−1 times, `within` k−c times."""

    together: float
    between: float
    within: float

    def spectrum(self, vote: Vote) -> list[float]:
        """All k of them, the largest first."""
        between, within = vote.classes - 1, vote.relevant_patterns - vote.classes
        return sorted([self.together, *[self.between] * between, *[self.within] * within], reverse=True)

    def rank(self, vote: Vote) -> int:
        """How many are not negligible."""
        spectrum = self.spectrum(vote)
        return sum(value >= NEGLIGIBLE * spectrum[0] for value in spectrum)


def attention_gains(vote: Vote) -> Gains:
    """Singular values of E[∂margin/∂(W_KᵀW_Q)] at uniform attention, where W_O W_V reads the classes.

    As in `li2024.theory.direction_gains`, which this is for k = c = 2: keys k_y = x̄_y ∘ (w_y − w_y·x̄_y), where w_y is
    1 on the patterns of c(y) and −1/(c−1) on the others', and w_y·x̄_y = α − β; queries x̄_y; E = 1/k Σ_y k_y x̄_yᵀ.

    >>> gains = attention_gains(Vote(20, 8, 2, 0.4, 0.1))
    >>> [round(value / gains.together, 2) for value in gains], gains.rank(Vote(20, 8, 2, 0.4, 0.1))
    ([1.0, 0.84, 0.57], 8)
    """
    count, gap, loser = vote.checked().relevant_patterns, vote.gap, vote.loser
    others = vote.other * math.sqrt(vote.patterns - count)
    own = gap * (1 - gap)
    keys = math.hypot((own / count - loser * gap) * math.sqrt(count), others * gap)
    queries = math.hypot((vote.relevant + vote.confusion) / math.sqrt(count), others)
    return Gains(
        together=keys * queries,
        between=gap * (own + loser * count / (vote.classes - 1)) / count,
        within=gap * own / count,
    )


def readout_gains(vote: Vote, spread: float) -> Gains:
    """Singular values of the first update of W_O, and those expected for W_V, where W_O is random and attention uniform.

    A neuron moves along Σ_y g_y p_y x̄_y: g_y is the pull on its class, p_y how often it is active where y wins. Over random
    neurons E[p_y p_y'] = 1/4 + asin(r)/(2π) with r = x̄_y·x̄_y'/(|x̄|² + `spread`), the normal orthant probability, and
    E[g_y g_y'] is 1/(c−1) within a class, −1/(c−1)² between two. Were all neurons active everywhere, p = 1, only the
    c − 1 differences of classes would move: the relu makes it k.

    >>> vote = Vote(20, 8, 2, 0.4, 0.1)
    >>> gains = readout_gains(vote, spread=0.07)
    >>> [round(value / gains.between, 2) for value in gains], gains.rank(vote)
    ([0.36, 1.0, 0.22], 8)
    """
    count, classes = vote.checked().relevant_patterns, vote.classes
    common = (vote.relevant + vote.confusion) ** 2 / count + vote.other**2 * (vote.patterns - count)
    across = common - vote.gap**2 / count
    square = across + vote.gap**2
    same = 0.25 + math.asin(square / (square + spread)) / (2 * math.pi)
    other = 0.25 + math.asin(across / (square + spread)) / (2 * math.pi)
    within = (same - other) / (classes - 1)
    between = within + count / (classes - 1) ** 2 * other
    return Gains(
        together=math.sqrt(within * count * common) / count,
        between=math.sqrt(between) * vote.gap / count,
        within=math.sqrt(within) * vote.gap / count,
    )


def mean_token_spread(vote: Vote, tokens: int, dim: int, noise: float) -> float:
    """E|x̄ − x̄_y|²: irrelevant and confusion tokens are drawn one by one, and each token has Gaussian noise."""
    drawn = (1 - vote.relevant - vote.confusion) * (1 - 1 / (vote.patterns - vote.relevant_patterns))
    lost = vote.confusion * (1 - 1 / (vote.relevant_patterns - 1))
    return (drawn + lost + noise**2 * dim) / tokens
