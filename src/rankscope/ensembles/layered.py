"""The transformer of li2024 with more layers and heads, for a stack of members.

A layer attends with `heads` heads of rank dim/heads and reads the result, z, with `hidden` neurons:

    z_l = [W_V^h X softmax(Xᵀ W_K^hᵀ W_Q^h x_l)]_h        neurons_l = relu(W_O z_l)

Every layer but the last gives tokens back, x_l ← W_P neurons_l; the last gives F(X) = 1/L Σ_l aᵀ neurons_l. With
residuals z_l and W_P neurons_l are added to what they were read from; with norms every token is brought to length 1
before attention and before the neurons read it. One layer of one head with neither is equation (1), `ensembles.patterns`.

Weights are a dictionary with the member axis first. Layer 1 is the first; `w_o/2` is the W_O of the second, and so on.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.ensembles import patterns
from rankscope.ensembles.patterns import TRAINED, Init, OneLayer
from rankscope.linalg.weights import Weights

SMALLEST = 1e-12
"""Least length a token is divided by: a zero token stays zero."""


class Norm(StrEnum):
    """What happens to a token before it is read.

    HELD gives what UNIT gives, but its derivative takes the token's length for a constant: it is there to tell what the
    derivative of the length does.
    """

    NONE = "none"
    UNIT = "unit"  # x/‖x‖
    HELD = "held"


class Layered(Config):
    """Sizes, wiring and initialisation. Heads share the dimensions: each has rank dim/heads.

    init_scale, init_noise, back_noise   start of W_Q, W_K, W_V (this times the identity), of W_O and of W_P (this times
                                         a standard normal)
    """

    dim: int = Field(default=24, ge=1)
    layers: int = Field(default=1, ge=1)
    heads: int = Field(default=1, ge=1)
    hidden: int = Field(default=200, ge=1)
    residual: bool = False
    norm: Norm = Norm.NONE
    init_scale: float = Field(default=0.2, gt=0)
    init_noise: float = Field(default=0.1, ge=0)
    back_noise: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _heads_share_the_dimensions(self) -> "Layered":
        if self.dim % self.heads:
            divisors = ", ".join(str(n) for n in range(1, self.dim + 1) if self.dim % n == 0)
            raise ValueError(
                f"heads={self.heads} does not divide dim={self.dim}. Choose heads among {divisors}."
            )
        return self

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the weights that training changes, layer by layer: all but `a`."""
        names = ((kind, layer) for layer in range(1, self.layers + 1) for kind in self.kinds(layer))
        return tuple(f"{kind}/{layer}" for kind, layer in names)

    def kinds(self, layer: int) -> tuple[str, ...]:
        """The matrices of a layer; the last has no W_P, since `a` reads its neurons."""
        return (*TRAINED, "w_p") if layer < self.layers else TRAINED


class Pass(NamedTuple):
    """What a layer reads, what its neurons read, and what they answer."""

    tokens: Float[Tensor, "member token_of_sample dim"]
    mixed: Float[Tensor, "member token_of_sample dim"]
    neurons: Float[Tensor, "member token_of_sample hidden"]


def init(
    models: Sequence[Layered],
    seeds: Sequence[int],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """The weights at step 0. Every layer starts as the one-layer model does, the last one from the same draw."""

    def start(model: Layered) -> OneLayer:
        return OneLayer(
            dim=model.dim, rank=model.dim, value_rank=model.dim, hidden=model.hidden, init=Init.THEORY,
            init_scale=model.init_scale, init_noise=model.init_noise,
        )  # fmt: skip

    def drawn(rows: int, columns: int, *names: str | int) -> Tensor:
        parts = [
            torch.randn(rows, columns, generator=stream(seed, "weights", *names), dtype=torch.float64)
            for seed in seeds
        ]
        return torch.stack(parts).to(device, dtype)

    model = models[0]
    last = patterns.init([start(m) for m in models], seeds, tokens=1, device=device, dtype=dtype)
    init_noise, back_noise = (
        torch.tensor([getattr(m, name) for m in models], device=device, dtype=dtype).view(-1, 1, 1)
        for name in ("init_noise", "back_noise")
    )
    weights = {f"{kind}/{model.layers}": last[kind] for kind in TRAINED}
    for layer in range(1, model.layers):
        weights |= {f"{kind}/{layer}": last[kind].clone() for kind in ("w_q", "w_k", "w_v")}
        weights[f"w_o/{layer}"] = init_noise * drawn(model.hidden, model.dim, "w_o", layer)
        weights[f"w_p/{layer}"] = back_noise * drawn(model.dim, model.hidden, "w_p", layer)
    return {**{name: weights[name] for name in model.trained}, "a": last["a"]}


def passes(model: Layered, weights: Weights, x: Float[Tensor, "member sample token dim"]) -> list[Pass]:
    """What happens in every layer; tokens of all samples share one axis."""
    members, samples, tokens, _ = x.shape
    flow = x.reshape(members, samples * tokens, model.dim)
    found = []
    for layer in range(1, model.layers + 1):
        own = {kind: weights[f"{kind}/{layer}"] for kind in model.kinds(layer)}
        read = _read(model.norm, flow)
        mixed = _attend(model, own, read, samples)
        flow = flow + mixed if model.residual else mixed
        mixed = _read(model.norm, flow)
        neurons = torch.bmm(mixed, own["w_o"].mT).relu()
        found.append(Pass(read, mixed, neurons))
        if "w_p" in own:
            back = torch.bmm(neurons, own["w_p"].mT)
            flow = flow + back if model.residual else back
    return found


def forward(
    model: Layered, weights: Weights, x: Float[Tensor, "member sample token dim"]
) -> Float[Tensor, "member sample"]:
    """F(X)."""
    neurons = passes(model, weights, x)[-1].neurons
    each = torch.bmm(neurons, weights["a"].unsqueeze(-1))
    return each.view(*x.shape[:3]).mean(-1)


def without_neurons(weights: Weights, gone: Mapping[int, Bool[Tensor, "member hidden"]]) -> dict[str, Tensor]:
    """The weights with neurons removed, layer by layer: their rows of W_O are zero, so they answer zero."""
    return {**weights, **{f"w_o/{n}": weights[f"w_o/{n}"] * ~mask.unsqueeze(-1) for n, mask in gone.items()}}


def without_heads(weights: Weights, gone: Mapping[int, Bool[Tensor, "member head"]]) -> dict[str, Tensor]:
    """The weights with heads removed, layer by layer: their rows of W_V are zero, so they add nothing to z."""
    kept = {}
    for layer, mask in gone.items():
        w_v = weights[f"w_v/{layer}"]
        rows = mask.repeat_interleave(w_v.shape[1] // mask.shape[1], dim=1)
        kept[f"w_v/{layer}"] = w_v * ~rows.unsqueeze(-1)
    return {**weights, **kept}


def hinge_gradients(
    model: Layered,
    weights: Weights,
    x: Float[Tensor, "member sample token dim"],
    labels: Float[Tensor, "member sample"],
) -> tuple[Float[Tensor, " member"], Weights]:
    """Mean hinge loss of a batch and its gradient in every trained weight."""
    leaves = _leaves(weights)
    loss = patterns.hinge(forward(model, leaves, x), labels).mean(-1)
    return loss.detach(), _gradients(model, leaves, loss)


def output_gradients(
    model: Layered,
    weights: Weights,
    x: Float[Tensor, "member sample token dim"],
    signs: Float[Tensor, "member sample"],
) -> Weights:
    """The gradient of the mean of sign · F(X) in every trained weight."""
    leaves = _leaves(weights)
    return _gradients(model, leaves, (signs * forward(model, leaves, x)).mean(-1))


def _leaves(weights: Weights) -> Weights:
    return {name: tensor.detach().requires_grad_(name != "a") for name, tensor in weights.items()}


def _gradients(model: Layered, leaves: Weights, loss: Float[Tensor, " member"]) -> Weights:
    grads = torch.autograd.grad(loss.sum(), [leaves[name] for name in model.trained])
    return dict(zip(model.trained, grads, strict=True))


def _read(norm: Norm, flow: Tensor) -> Tensor:
    if norm is Norm.NONE:
        return flow
    length: Tensor = torch.linalg.vector_norm(flow, dim=-1, keepdim=True).clamp_min(SMALLEST)
    return flow / (length if norm is Norm.UNIT else length.detach())


def _attend(model: Layered, own: Weights, read: Tensor, samples: int) -> Tensor:
    """The heads' answers side by side: z of every token."""
    members, rows, dim = read.shape
    shape = (members, samples, rows // samples, 3, model.heads, dim // model.heads)
    projections = torch.cat([own[kind] for kind in ("w_q", "w_k", "w_v")], dim=1)
    together = torch.bmm(read, projections.mT).view(shape).permute(3, 0, 1, 4, 2, 5)
    q, k, v = together.reshape(3, -1, rows // samples, dim // model.heads).unbind(0)
    scores = torch.bmm(q, k.mT)
    shares = (
        scores - scores.detach().amax(-1, keepdim=True)
    ).exp()  # the library's softmax takes longer on short rows
    z = torch.bmm(shares, v) / shares.sum(-1, keepdim=True)
    z = z.view(members, samples, model.heads, rows // samples, -1).transpose(2, 3)
    return z.reshape(members, rows, dim)
