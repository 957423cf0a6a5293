"""The paper's encoder for a stack of members: `RankEncoder.averaged`, with the member axis first.

At one budget the projections of every (rank, heads) pair have the same shape, (budget·dim) × width. So members of
different rank share every matrix product, and only attention's reshape differs from one group of rank to the next.

A member's weights are what its seed says, whatever its rank and whoever stands beside it.
"""

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import groupby

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config, InputError, stream
from rankscope.models.encoder import heads_of_budget
from rankscope.models.small_attention import sample_last_attention

Weights = dict[str, Tensor]
"""(member, layer, …) for each parameter of a layer, and (member, token, …) for positions."""


SMALLEST = 1e-24
"""Least squared length a token is divided by: a zero token stays zero, as in `functional.normalize`."""


class Positions(Enum):
    """What a token knows of its place: nothing, a learned vector added to it, or one appended to it."""

    NONE = "none"
    ADDITIVE = "additive"
    CONCATENATED = "concatenated"


class Encoder(Config):
    """Post-norm layers with biases, a ReLU MLP and the one-scalar norm; heads = budget·dim/rank in each layer."""

    dim: int = Field(ge=2)
    rank: int = Field(ge=1)
    budget: int = Field(ge=1)
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    positions: Positions = Positions.NONE

    @model_validator(mode="after")
    def _blocks_are_whole(self) -> "Encoder":
        heads_of_budget(self.dim, self.rank, self.budget)
        return self

    @property
    def heads(self) -> int:
        """All heads of a layer."""
        return heads_of_budget(self.dim, self.rank, self.budget)

    @property
    def width(self) -> int:
        """Of a token inside the encoder: positions that are appended are as wide as the point itself."""
        return 2 * self.dim if self.positions is Positions.CONCATENATED else self.dim


def init(
    models: Sequence[Encoder],
    seeds: Sequence[int],
    *,
    tokens: int,
    last_scale: float = 1.0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """Initial weights by the law of PyTorch's encoder layer: a member's are those of its seed, at any rank.

    Every norm's scalar starts at 1, the last one, which sets the size and sign of the output, at `last_scale`.
    """
    check_stack(models)
    members = [_one(model, seed, tokens, dtype) for model, seed in zip(models, seeds, strict=True)]
    weights = {name: torch.stack([member[name] for member in members]).to(device) for name in members[0]}
    weights["mlp_norm"][:, -1] = last_scale
    return weights


def forward(
    models: Sequence[Encoder], weights: Weights, points: Float[Tensor, "member sample token dim"]
) -> Float[Tensor, "member sample token dim"]:
    """Every token's answer: the encoder's output, its first `dim` features where positions were appended."""
    model = models[0]
    members, samples, tokens, dim = points.shape
    x = (
        _with_positions(model, weights, points).permute(0, 3, 2, 1).flatten(2)
    )  # (member, feature, token·sample)
    for own in _by_layer(weights):
        x = _norm(own["attention_norm"], x + _attend(models, own, x, tokens))
        x = _norm(own["mlp_norm"], x + _mlp(own, x))
    return x[:, :dim].reshape(members, dim, tokens, samples).permute(0, 3, 2, 1)


def key_query_products(
    model: Encoder, weights: Weights, member: int, layer: int = 0
) -> Float[Tensor, "head width width"]:
    """M_h = W_Kᵀ W_Q of every head of a member, without the factor 1/√rank."""
    w_k, w_q = (
        weights[name][member, layer].view(model.heads, model.rank, model.width) for name in ("w_k", "w_q")
    )
    return w_k.mT @ w_q


def rank_groups(models: Sequence[Encoder]) -> Iterator[tuple[int, slice]]:
    """Each rank with the members that have it, side by side."""
    start = 0
    for rank, members in groupby(model.rank for model in models):
        count = len(list(members))
        yield rank, slice(start, start + count)
        start += count


def _one(model: Encoder, seed: int, tokens: int, dtype: torch.dtype) -> Weights:
    """A linear map's weight is uniform in ±bound; the bounds are those of nn.MultiheadAttention and nn.Linear."""
    layers, width, inner, hidden = model.layers, model.width, model.budget * model.dim, model.hidden
    uniform = {
        "w_q": ((inner, width), math.sqrt(1.5 / width)),
        "w_k": ((inner, width), math.sqrt(1.5 / width)),
        "w_v": ((inner, width), math.sqrt(1.5 / width)),
        "w_o": ((width, inner), 1 / math.sqrt(inner / model.budget)),
        "w_in": ((hidden, width), 1 / math.sqrt(width)),
        "b_in": ((hidden,), 1 / math.sqrt(width)),
        "w_out": ((width, hidden), 1 / math.sqrt(hidden)),
        "b_out": ((width,), 1 / math.sqrt(hidden)),
    }
    weights = {}
    for name, (shape, bound) in uniform.items():
        generator = stream(seed, "encoder", name)
        weights[name] = (2 * torch.rand(layers, *shape, generator=generator, dtype=dtype) - 1) * bound
    for name, size in (("b_q", inner), ("b_k", inner), ("b_v", inner), ("b_o", width)):
        weights[name] = torch.zeros(layers, size, dtype=dtype)
    for name in ("attention_norm", "mlp_norm"):
        weights[name] = torch.ones(layers, dtype=dtype)
    if model.positions is not Positions.NONE:
        drawn = torch.randn(tokens, model.dim, generator=stream(seed, "encoder", "positions"), dtype=dtype)
        weights["positions"] = drawn / math.sqrt(model.dim)
    return weights


def _by_layer(weights: Weights) -> Iterator[Weights]:
    """Each layer's weights, the layer axis taken apart once: a slice a layer would cost a sum of gradients each."""
    names = [name for name in weights if name != "positions"]
    for parts in zip(*(weights[name].unbind(1) for name in names), strict=True):
        yield dict(zip(names, parts, strict=True))


def _with_positions(model: Encoder, weights: Weights, points: Tensor) -> Tensor:
    if model.positions is Positions.NONE:
        return points
    places = weights["positions"].unsqueeze(1)
    if model.positions is Positions.ADDITIVE:
        return points + places
    return torch.cat([points, places.expand_as(points)], dim=-1)


def _attend(models: Sequence[Encoder], own: Weights, x: Tensor, tokens: int) -> Tensor:
    """(1/budget) Σ over all heads, a group of equal rank at a time."""
    w, b = (torch.cat([own[f"{kind}_{part}"] for part in "qkv"], dim=1) for kind in "wb")
    q, k, v = _linear(w, b, x).chunk(3, dim=1)
    contexts = []
    for rank, members in rank_groups(models):
        shape = (-1, q.shape[1] // rank, rank, tokens, q.shape[2] // tokens)
        heads = (part[members].reshape(shape) for part in (q, k, v))
        contexts.append(sample_last_attention(*heads).flatten(3).flatten(1, 2))
    return _linear(own["w_o"] / models[0].budget, own["b_o"], torch.cat(contexts))


def _mlp(own: Weights, x: Tensor) -> Tensor:
    return _linear(own["w_out"], own["b_out"], torch.relu(_linear(own["w_in"], own["b_in"], x)))


def _linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return torch.baddbmm(bias.unsqueeze(-1), weight, x)


def _norm(scale: Tensor, x: Tensor) -> Tensor:
    """x ↦ scale · x/‖x‖   [amsel2024, RMSNorm]"""
    return scale.view(-1, 1, 1) * x * x.square().sum(1, keepdim=True).clamp_min(SMALLEST).rsqrt()


def check_stack(models: Sequence[Encoder]) -> None:
    """Members may differ in rank, and in nothing else."""
    if len({model.replace(rank=1) for model in models}) > 1:
        raise InputError(
            "Members of one stack may differ in rank only: at one budget rank leaves the shapes of the weights "
            "alike. Make a stack for each dim, budget, layers, hidden and positions."
        )
