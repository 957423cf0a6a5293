"""Match3: does some pair complete my token to a multiple of the modulus? [Sanford, Hsu, Telgarsky 2023]

One layer of attention needs rank · heads · precision of the order of the number of tokens for it; the talk
names it as the other known separation, one of total size rather than of rank [amsel2024, related work].
"""

from dataclasses import dataclass
from fractions import Fraction
from math import comb

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from rankscope.core import Config
from rankscope.tasks.randomness import Randomness, generator_of


class Matching(Config):
    """`tokens` independent uniform numbers 0 … modulus − 1."""

    modulus: int = Field(ge=2)
    tokens: int = Field(ge=1)


@dataclass(frozen=True)
class MatchingBatch:
    """Numbers, and for each whether it has a match."""

    numbers: Int[Tensor, "sample token"]
    answer: Bool[Tensor, "sample token"]


def sample(task: Matching, batch: int, source: Randomness) -> MatchingBatch:
    """`batch` fresh samples."""
    generator = generator_of(source, "matching")
    shape = (batch, task.tokens)
    numbers = torch.randint(task.modulus, shape, generator=generator, device=generator.device)
    return MatchingBatch(numbers, exact_answer(numbers, task.modulus))


def exact_answer(numbers: Int[Tensor, "*sample token"], modulus: int) -> Bool[Tensor, "*sample token"]:
    """Match3_i = [∃ j, k: x_i + x_j + x_k ≡ 0 mod modulus]; i, j, k need not differ.

    Over values instead of pairs, in O(tokens · modulus): x_i matches if some value u and −x_i − u both occur.
    """
    values = torch.arange(modulus, device=numbers.device)
    present = (numbers.unsqueeze(-1) == values).any(-2)
    partner = (-numbers.unsqueeze(-1) - values) % modulus
    partner_present = present.unsqueeze(-2).expand(*partner.shape).gather(-1, partner)
    return (present.unsqueeze(-2) & partner_present).any(-1)


def match_probability(task: Matching) -> Fraction:
    """P[a token has a match], exactly.

    Given x_i = a, no match means that of every pair {u, −a − u} at most one value occurs among the other
    n = tokens − 1 numbers, and of fixed points u = −a − u none. With a's own pair {a, −2a} (a may recur,
    −2a may not), `fixed` fixed points and p = (modulus − 2 − fixed)/2 further pairs, the number of such
    sequences is n! [zⁿ] eᶻ(2eᶻ − 1)ᵖ = Σ_k C(p, k) 2ᵏ (−1)^{p−k} (k + 1)ⁿ. If 3a ≡ 0, a matches by itself.
    """
    modulus, others = task.modulus, task.tokens - 1
    missed = 0
    for a in range(modulus):
        if 3 * a % modulus == 0:
            continue
        fixed = sum((2 * u + a) % modulus == 0 for u in range(modulus))
        pairs = (modulus - 2 - fixed) // 2
        missed += sum(
            comb(pairs, k) * 2**k * (-1) ** (pairs - k) * (k + 1) ** others for k in range(pairs + 1)
        )
    return 1 - Fraction(missed, modulus ** (others + 1))


def constant_answer(task: Matching) -> bool:
    """The best answer that does not look: whichever is more likely."""
    return match_probability(task) > Fraction(1, 2)


def constant_error(task: Matching) -> Fraction:
    """How often the best constant answer is wrong: min(p, 1 − p)."""
    probability = match_probability(task)
    return min(probability, 1 - probability)
