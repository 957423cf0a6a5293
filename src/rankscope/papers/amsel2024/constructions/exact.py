"""The exact errors of the constructions, each a closed form or one quadrature."""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import betainc, expit, gammaln, hyp2f1
from torch import Tensor

from rankscope.core import InputError

QUADRATURE_NODES = 64


def sphere_constant(dim: int) -> float:
    """c_d = Γ(d/2) / (√π Γ((d−1)/2)), which makes `inner_product_density` integrate to 1."""
    return math.exp(float(gammaln(dim / 2) - gammaln((dim - 1) / 2))) / math.sqrt(math.pi)


def inner_product_density(dim: int, t: float) -> float:
    """u_d(t) = c_d (1 − t²)^((d−3)/2), the density of ⟨x, y⟩ for independent uniform x, y on S^{d−1}."""
    return sphere_constant(dim) * float((1 - t * t) ** ((dim - 3) / 2))


def error_two_orthonormal(dim: int, beta: float) -> float:
    """Error of softmax(β Xᵀy) on two orthonormal points: ½ E(1 − tanh(β|t|/√2))², t = ⟨w, y⟩ for a unit w."""

    def missed(t: float) -> float:
        return 0.5 * (1 - math.tanh(beta * t / math.sqrt(2))) ** 2

    return _even_average(dim, missed, beta)


def error_two_independent(dim: int, beta: float) -> float:
    """Error of softmax(β Xᵀy) on two independent uniform points.

    E[(2 − 2ρ) σ(−β√(2 − 2ρ)|t|)²] with ρ = ⟨x_1, x_2⟩ and t independent, both with density u_d.
    """

    def at_angle(angle: float) -> float:
        gap = 2 * math.sin(angle / 2)
        missed = _even_average(dim, lambda t: gap**2 * float(expit(-beta * gap * t)) ** 2, beta * gap)
        return sphere_constant(dim) * math.sin(angle) ** (dim - 2) * missed

    value, _ = quad(at_angle, 0, math.pi, epsabs=0, epsrel=1e-8, limit=200)
    return float(value)


def failure_rate(dim: int, heads: int) -> float:
    """P[the majority of `heads` random rank-1 heads is wrong], exactly, for odd heads = 2m + 1.

    2 c_d ∫_0^{π/2} cos^{d−2}φ · I_{1/2 − φ/π}(m + 1, m + 1) dφ: given sin φ = |⟨w, y⟩| the heads are right
    independently with probability 1/2 + φ/π, and I is the binomial tail.
    """
    half = (heads + 1) / 2

    def wrong(phi: float) -> float:
        return math.cos(phi) ** (dim - 2) * float(betainc(half, half, 0.5 - phi / math.pi))

    value, _ = quad(wrong, 0, math.pi / 2, epsabs=0, epsrel=1e-10, limit=500, points=[1 / math.sqrt(heads)])
    return 2 * sphere_constant(dim) * float(value)


def head_agreement(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Float[Tensor, "head head"]:
    """C_ij = P[heads i and j pick the same of two points] = 1/2 + (2/π²) asin⟨q_i, q_j⟩ asin⟨k_i, k_j⟩."""
    _check_unit(q, k)
    q_angle, k_angle = (torch.asin((x @ x.mT).clamp(-1, 1)) for x in (q, k))
    agreement = 0.5 + (2 / math.pi**2) * q_angle * k_angle
    return agreement.fill_diagonal_(1.0)


def target_agreement(q: Float[Tensor, "head dim"], k: Float[Tensor, "head dim"]) -> Float[Tensor, " head"]:
    """b_h = P[head h picks the nearest] = (1 + c(θ_h))/2 with cos θ_h = ⟨q_h, k_h⟩."""
    _check_unit(q, k)
    cosine = (q * k).sum(-1).clamp(-1, 1)
    return (1 + target_advantage(q.shape[-1], cosine)) / 2


def target_advantage(dim: int, cosine: Float[Tensor, " head"]) -> Float[Tensor, " head"]:
    """c(θ) = E[sgn⟨w, k⟩ sgn⟨q, y⟩ sgn⟨w, y⟩] for uniform w, y and cos θ = ⟨q, k⟩.

    dc/dθ = −(4 c_d / (π(d − 1))) sin θ ₂F₁(1/2, 1/2; (d + 1)/2; sin²θ) and c(π/2) = 0; in u = cos θ
    c = (4 c_d / (π(d − 1))) ∫_0^{cos θ} ₂F₁(1/2, 1/2; (d + 1)/2; 1 − u²) du, by Gauss-Legendre.
    """
    nodes, node_weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    upper = cosine.double().cpu().numpy()
    u = 0.5 * upper[:, None] * (1 + nodes)
    integral = 0.5 * upper * (hyp2f1(0.5, 0.5, (dim + 1) / 2, 1 - u**2) @ node_weights)
    scaled = 4 * sphere_constant(dim) / (math.pi * (dim - 1)) * integral
    return torch.as_tensor(scaled, dtype=cosine.dtype, device=cosine.device)


def _even_average(dim: int, value: Callable[[float], float], sharpness: float) -> float:
    """E[value(|t|)] under u_d, in t = sin φ (regular at dim = 2 too); `value` lives on |t| ≲ 1/sharpness."""

    def weighted(phi: float) -> float:
        return 2 * sphere_constant(dim) * math.cos(phi) ** (dim - 2) * value(math.sin(phi))

    corners = [corner for corner in (1 / max(sharpness, 1.0), 10 / max(sharpness, 1.0)) if corner < 1.5]
    average, _ = quad(weighted, 0, math.pi / 2, epsabs=0, epsrel=1e-10, limit=500, points=corners)
    return float(average)


def _check_unit(q: Tensor, k: Tensor) -> None:
    for name, directions in (("q", q), ("k", k)):
        lengths = directions.norm(dim=-1)
        if not torch.allclose(lengths, torch.ones_like(lengths), atol=1e-6):
            raise InputError(
                f"{name} is not of unit length, and asin of its products is no angle: divide it by its norm."
            )
