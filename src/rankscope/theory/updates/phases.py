"""The spectrum of ΔW_K when the loss is gone, in closed form: at which noise its second direction drowns.

Symbols and shapes. A sample is L tokens x_j = μ_j + σ g_j in R^d, d = M, x̄ their mean, C = 1/L Σ_j (x_j − x̄) x_jᵀ (d × d).
Shares α relevant, κ confusion, ρ = (1−α−κ)/(M−2) of each other pattern; g = α − κ. r = W_Vᵀ(s∘a)W_O in R^d is what a token
is read by; training turns it to r = c (μ_1−μ_2). At uniform attention a sample of label y pulls

    ∂(yF)/∂W_K = y (W_Q x̄)(C r)ᵀ                                        one matrix of rank one a sample, d × d

Both factors are a mean, which the label alone decides, and a deviation: x̄ = q + δq, C r = c (k + δk). So over a batch
**two** labels give two directions, and the third singular value is the cross-covariance of δq and δk, nothing else.
All of it assumes attention near uniform (δ² ≪ 1) and a batch large enough to know the mean (M Var δq ≪ samples · g²).

Two borders in σ follow. Under `drowning_noise` the second direction is above the third when the loss is gone; under
`outvoting_noise` the loss does go. Rank two needs both.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

from rankscope.core import InputError
from rankscope.theory.updates.directions import direction_gains
from rankscope.theory.updates.path import Mean


class PhaseSetting(NamedTuple):
    """What the spectrum depends on, in the words of the configuration."""

    mean: Mean
    tokens: int
    noise: float
    batch: int
    steps: int
    learning_rate: float
    init_scale: float
    init_noise: float


class ReadingGrowth(NamedTuple):
    """Σ_t c_t, the steps with their weight, how many samples they are worth as an average, and how many steps there were."""

    weight: float
    samples: float
    steps: int


class UpdateSpectrum(NamedTuple):
    """The singular values of ΔW_K: along μ_1+μ_2 and the others, along μ_1−μ_2, and the largest of all the rest."""

    together: float
    apart: float
    rest: float

    @property
    def ratio(self) -> float:
        """σ₂/σ₃, as long as both directions are above the rest."""
        return min(self.together, self.apart) / self.rest if self.rest > 0 else math.inf


def reading_growth(setting: PhaseSetting) -> ReadingGrowth:
    """How the reading c grows until the margin c·g is one, and with it the weight of each step.

    With u = (s∘a)W_O and b = W_V(μ_1−μ_2)/2, half of the neurons active, SGD turns each towards the other:

        b ← b + ε u,   u ← u + ε b,   ε = η g/2,   c = b·u,   |b_0|² = δ²/2,   |u_0|² = ξ² M/2,   b_0·u_0 = 0

    so c_t = (|b_0|²+|u_0|²)/4 · ((1+ε)^{2t} − (1−ε)^{2t}). As an average, steps of weight c_t are worth
    B (Σc_t)²/Σc_t² samples.
    """
    rate = setting.learning_rate * setting.mean.gap / 2
    size = (setting.init_scale**2 + setting.init_noise**2 * setting.mean.patterns) / 8
    total = squares = 0.0
    step = 0
    while step < setting.steps:
        reading = size * ((1 + rate) ** (2 * step) - (1 - rate) ** (2 * step))
        if reading * setting.mean.gap >= 1:
            break
        total, squares, step = total + reading, squares + reading**2, step + 1
    return ReadingGrowth(total, setting.batch * total**2 / squares if squares else 0.0, step)


def cross_covariance_edge(ratio: float) -> float:
    """The largest singular value of QKᵀ/n, for independent d × n matrices of independent unit entries, ratio = d/n.

    QᵀQ/n and KᵀK/n are free with S-transform 1/(ratio + z), so their product has 1/(ratio + z)², and the edge of its
    spectrum is the least of (1+z)(ratio+z)²/z, at 2z² + z = ratio. For n ≫ d it is 2√(d/n), that of independent entries.

    >>> round(cross_covariance_edge(1.0) ** 2, 6)  # the Fuss–Catalan law ends at 27/4
    6.75
    """
    z = (math.sqrt(1 + 8 * ratio) - 1) / 4
    return (ratio + z) * math.sqrt((1 + z) / z)


def shifted_edge(edge: float, shift: float) -> float:
    """The largest singular value of shift·I + N, where the random square matrix N alone has `edge`.

    With s = edge/2 and w = √(1 + 8 shift²/s²): s √((w+3)³ / (8(w+1))).

    >>> shifted_edge(2.0, 0.0), round(shifted_edge(1e-6, 3.0), 3)
    (2.0, 3.0)
    """
    if edge == 0:
        return abs(shift)
    unit = edge / 2
    w = math.sqrt(1 + 8 * (shift / unit) ** 2)
    return unit * math.sqrt((w + 3) ** 3 / (8 * (w + 1)))


def rest_of_update(setting: PhaseSetting, samples: float) -> float:
    """The largest singular value outside the two directions of the mean over `samples` of y x̄ (C(μ_1−μ_2))ᵀ.

    In a direction across the means, with V = α + κ − g² + 2σ²(1−1/L) the variance of x·(μ_1−μ_2) within a sample:

        Var δq = (ρ + σ²)/L          Var δk = (ρ(g² + 2σ²) + σ²V)/L          E[y δq δk] = −gρ/L

    The last is there without any noise: how often an irrelevant pattern occurs moves x̄ and C r alike. The number of
    irrelevant tokens is fixed, so their patterns vary in M − 3 directions, and with a single one (M = 3) in none.
    """
    directions = max(setting.mean.patterns - 3, 1)
    g, tokens = setting.mean.gap, setting.tokens
    rho = setting.mean.other if setting.mean.patterns > 3 else 0.0
    variance = setting.noise**2
    within = setting.mean.relevant + setting.mean.confusion - g**2 + 2 * variance * (1 - 1 / tokens)
    query = (rho + variance) / tokens
    key = (rho * (g**2 + 2 * variance) + variance * within) / tokens
    edge = math.sqrt(query * key) * cross_covariance_edge(directions / samples)
    return shifted_edge(edge, g * rho / tokens)


def update_spectrum(setting: PhaseSetting) -> UpdateSpectrum:
    """The singular values of ΔW_K at the step at which the loss is gone.

    Signal. For each of the two directions, of gain G (`direction_gains`) and unit vectors k̂, q̂, W_Q and W_K grow together:

        w = W_K k̂ and p = W_Q q̂:   dw = θ' p,   dp = θ' w,   θ = η G Σ_t c_t
        ΔW_K = (w − δ k̂) k̂ᵀ,       w = δ (k̂ cosh θ + q̂ sinh θ)

    Noise also reads: σ²(1−1/L)(μ_1−μ_2) is part of C(μ_1−μ_2), and widens the gain of the direction apart.
    Rest. W_Q = δ I there: δ η Σ_t c_t times `rest_of_update`.
    """
    if setting.noise < 0 or setting.tokens < 2:
        raise InputError(f"noise={setting.noise}, tokens={setting.tokens}: needs noise ≥ 0 and tokens ≥ 2.")
    gains = direction_gains(*setting.mean)
    grown = reading_growth(setting)
    path = setting.learning_rate * grown.weight
    apart = gains.apart + setting.noise**2 * (1 - 1 / setting.tokens) * setting.mean.gap
    return UpdateSpectrum(
        together=setting.init_scale * _grown(gains.together * path, _overlap(setting)),
        apart=setting.init_scale * _grown(apart * path, 1.0),
        rest=setting.init_scale * path * rest_of_update(setting, grown.samples),
    )


def drowning_noise(setting: PhaseSetting, ratio: float, *, highest: float = 2.0) -> float:
    """The σ at which σ₂/σ₃ of ΔW_K has fallen to `ratio` when the loss is gone, by bisection; 0 if it is lower without."""

    def drowned(noise: float) -> bool:
        return update_spectrum(setting._replace(noise=noise)).ratio < ratio

    low, high = 0.0, highest
    if drowned(low):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if drowned(middle) else (middle, high)
    return (low + high) / 2


def outvoting_noise(setting: PhaseSetting) -> float:
    """The σ at which the noise outvotes the majority in one of the B·T samples of training.

    A sample's vote is x̄·(μ_1−μ_2) y = g + σ √(2/L) · normal. Where it is negative the hinge loss grows with c and never
    ends, and what training goes on to fit is noise:   B T Φ(−g √(L/2)/σ) = 1.
    """
    tail = NormalDist().inv_cdf(1 - 1 / (setting.batch * setting.steps))
    return setting.mean.gap * math.sqrt(setting.tokens / 2) / tail


def noise_border(setting: PhaseSetting, ratio: float) -> float:
    """The σ up to which ΔW_K ends with σ₂/σ₃ ≥ `ratio`: the lower of the two borders."""
    return min(drowning_noise(setting, ratio), outvoting_noise(setting))


def _grown(angle: float, overlap: float) -> float:
    """|k̂(cosh θ − 1) + q̂ sinh θ|, with `overlap` = k̂·q̂."""
    along, across = math.cosh(angle) - 1, math.sinh(angle)
    return math.sqrt(along**2 + across**2 + 2 * overlap * along * across)


def _overlap(setting: PhaseSetting) -> float:
    """k̂·q̂ of the direction together: entries on (μ_1+μ_2)/√2 and on the sum of the others."""
    g, others = setting.mean.gap, math.sqrt(setting.mean.patterns - 2) * setting.mean.other
    key = ((setting.mean.relevant * (1 - g) - setting.mean.confusion * (1 + g)) / math.sqrt(2), -others * g)
    query = ((setting.mean.relevant + setting.mean.confusion) / math.sqrt(2), others)
    return (key[0] * query[0] + key[1] * query[1]) / (math.hypot(*key) * math.hypot(*query))
