"""How far training has to go, and how far it can get: bounds on the path ηT, and the path of gradient flow.

The *path* of a training is ηT. Everything here is for the one-layer transformer of li2024, equation (1), with unit tokens
and ‖a‖ = 1, trained by (5) with the hinge loss, whatever the data, the batches and the attention; v = ‖W_V‖, o = ‖W_O‖,
spectral norms. The proofs are written out in docs/proofs.md.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from rankscope.core import InputError

PRINTED_RATE_POWER = -3 / 5
PRINTED_FRACTION_POWER = -1.0
"""T = Θ(η^{−3/5} α_*^{−1}), theorem 1."""

LARGE = 700.0
"""Exponents from which on a bound is as good as none."""


class Norms(NamedTuple):
    """Spectral norms at the start: of W_V, of W_O, and of W_Q and W_K, which start alike."""

    value: float
    output: float
    query: float = 0.0


def output_bound(start: Norms, path: float) -> float:
    """The greatest |F(X)| that training can have reached after a path ηT (P1).

    |F| ≤ vo, and a step adds at most ηo to v and ηv to o, so that v and o stay below the solution of v' = o, o' = v:

        |F| ≤ v₀o₀ cosh 2ηT + ½(v₀² + o₀²) sinh 2ηT

    >>> round(output_bound(Norms(0.2, 0.25), 0.0), 3)
    0.05
    """
    product, squares = start.value * start.output, start.value**2 + start.output**2
    return product * math.cosh(2 * path) + squares / 2 * math.sinh(2 * path)


def least_path(start: Norms, loss: float = 0.0) -> float:
    """The least ηT after which the mean hinge loss can be `loss`: some sample then has |F| ≥ 1 − loss (P1).

    ηT ≥ ½ log((2ℓ + √(4ℓ² + (v₀² − o₀²)²)) / (v₀ + o₀)²),   ℓ = 1 − loss:   `output_bound` solved for ηT.

    It does not depend on η. T = Θ(η^{−3/5}) would have ηT → 0 as η → 0.

    >>> start = Norms(0.2, 0.25)
    >>> round(least_path(start), 3), round(output_bound(start, least_path(start)), 6)
    (1.492, 1.0)
    """
    margin = 1 - loss
    if not 0 < margin <= 1 or start.value + start.output <= 0:
        raise InputError(f"{start}, loss={loss}: needs a start that is not zero and 0 ≤ loss < 1.")
    root = math.hypot(2 * margin, start.value**2 - start.output**2)
    return max(0.0, 0.5 * math.log((2 * margin + root) / (start.value + start.output) ** 2))


def update_bound(start: Norms, path: float) -> float:
    """The greatest ‖ΔW_Q‖ or ‖ΔW_K‖ after a path ηT (P4).

    ‖∂F/∂W_Q‖ ≤ ‖W_K‖ vo and the other way round, so both norms stay below δ exp(∫vo), where `output_bound` bounds vo:

        ‖ΔW_Q‖ ≤ δ (exp(½ v₀o₀ sinh 2ηT + ¼ (v₀² + o₀²)(cosh 2ηT − 1)) − 1)

    A bound in ηT alone: where ηT stays bounded as η → 0, μᵀΔWμ cannot grow like √log T, nor like anything.
    """
    squares = start.value**2 + start.output**2
    integral = start.value * start.output * math.sinh(2 * path) / 2 + squares * (math.cosh(2 * path) - 1) / 4
    return start.query * math.expm1(integral) if integral < LARGE else math.inf


class Mean(NamedTuple):
    """The data model's numbers that the mean of a sample depends on: M, α and κ."""

    patterns: int
    relevant: float
    confusion: float

    @property
    def gap(self) -> float:
        """g = α − κ."""
        return self.relevant - self.confusion

    @property
    def other(self) -> float:
        """ρ, the share of each irrelevant pattern."""
        return (1 - self.relevant - self.confusion) / (self.patterns - 2)

    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean token of a sample of label +1 and of label −1, in the basis of the patterns."""
        plus = np.full(self.patterns, self.other)
        plus[:2] = self.relevant, self.confusion
        minus = plus.copy()
        minus[:2] = self.confusion, self.relevant
        return plus, minus


class Initial(NamedTuple):
    """m neurons, δ and ξ."""

    hidden: int
    init_scale: float
    init_noise: float


def flow_path(mean: Mean, start: Initial, *, loss: float = 0.05, draws: int = 4, step: float = 0.05) -> float:
    """ηT of gradient flow on the two mean samples at uniform attention: the corrected law is T = flow_path/η.

    At uniform attention every position reads z = W_V x̄, and the two labels have the mean tokens x̄₊ and x̄₋. With
    A = W_V x̄₊, B = W_V x̄₋ and u± = Σ a_i o_i over the neurons that are active there, gradient flow in s = ηt is closed:

        o_i' = ½ a_i (1[o_i·A > 0] A − 1[o_i·B > 0] B)
        A'   = ½ (|x̄₊|² u₊ − x̄₊·x̄₋ u₋)         B' = ½ (x̄₊·x̄₋ u₊ − |x̄₋|² u₋)

    each half as long as its sample is inside the margin. η is gone, so T ∝ 1/η; M, m, δ and ξ enter by logarithms, and
    the fractions nearly as 1/(α − κ). The mean over `draws` of W_O and a.

    >>> path = flow_path(Mean(20, 0.4, 0.1), Initial(200, 0.2, 0.2 / 200**0.5))
    >>> 27 < path < 32
    True
    """
    return float(np.mean(_paths(mean, start, loss, step, draws)))


@cache
def _paths(mean: Mean, start: Initial, loss: float, step: float, draws: int) -> tuple[float, ...]:
    """ηT of each draw, all in step; a draw that has come to its end goes on, and is no longer looked at."""
    samples = np.stack(mean.samples())
    products = samples @ samples.T
    rngs = [np.random.default_rng(draw) for draw in range(draws)]
    rows = np.stack([start.init_noise * rng.standard_normal((start.hidden, mean.patterns)) for rng in rngs])
    signs = np.stack([rng.choice([-1.0, 1.0], start.hidden) for rng in rngs]) / math.sqrt(start.hidden)
    signed = signs[..., None] * np.array((1.0, -1.0))  # a_i times the label of either sample
    read = np.repeat(start.init_scale * samples[None], draws, axis=0)  # A and B, a row each
    paths, path = [math.inf] * draws, 0.0
    while True:
        at = rows @ read.mT
        felt = signed * (at > 0)
        losses = np.maximum(0.0, 1 - (felt * at).sum(1))
        there = losses.sum(-1) / 2 < loss
        paths = [path if now and found > path else found for now, found in zip(there, paths, strict=True)]
        if max(paths) < math.inf:
            return tuple(paths)
        felt *= (losses > 0)[:, None]
        pull = felt.mT @ rows
        rows += step / 2 * felt @ read
        read = read + step / 2 * (products @ pull)
        path += step
