"""The paper's encoder for a stack of members: `RankEncoder.averaged`, with the member axis first.

At one budget the projections of every (rank, heads) pair have the same shape, (budget·dim) × width. So members of
different rank share every matrix product, and only attention's reshape differs from one group of rank to the next.

A member's weights depend on its seed alone, not on its rank or the other members. They are (member, layer, …) for
each parameter of a layer, and (member, token, …) for positions.

Training holds the weights as `leaves_of` arranges them, so that a step neither slices nor concatenates them: a tensor
a layer, and one matrix for w_q, w_k, w_v and their biases.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from rankscope import kernels
from rankscope.core import Config, InputError
from rankscope.core.streams import stream
from rankscope.kernels import mlp
from rankscope.kernels.attention import rank_groups
from rankscope.kernels.norm import SMALLEST, residual_norm
from rankscope.kernels.small_attention import Way, attend, best_way, token_first
from rankscope.linalg.weights import Weights
from rankscope.theory.heads.counting import heads_of_budget

Leaves = dict[str, Tensor]
"""(member, …) for each `layer.parameter`, and positions as they are.

`w_qkv` of a layer is (member, 3·inner, width + ones): the bias is the weight of a feature that is always 1. Where there are
more ones than one, the others are features that are 0, and their weights 0 for good.
"""

ONES = 8
"""Features added on the matrix units, which take multiples of eight."""

PARTS = ("q", "k", "v")


class Positions(Enum):
    """What a token knows of its place: nothing, a learned vector added to it, or one appended to it.

    ADDITIVE, CONCATENATED    start Gaussian with variance 1/dim, as long as a point; heads = budget·dim/rank
    AUTHORS_ADDITIVE          starts Gaussian with mean −1 and variance 1: about eleven times as long as a point at dim 64
    AUTHORS_CONCATENATED      starts uniform on (−1, 1); each block is as wide as the longer token, so that
                              heads = budget·2dim/rank
    """

    NONE = "none"
    ADDITIVE = "additive"
    CONCATENATED = "concatenated"
    AUTHORS_ADDITIVE = "authors' additive"
    AUTHORS_CONCATENATED = "authors' concatenated"

    @property
    def appended(self) -> bool:
        """Whether the place is appended to the point."""
        return self in (Positions.CONCATENATED, Positions.AUTHORS_CONCATENATED)


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
        heads_of_budget(self.block, self.rank, self.budget)
        return self

    @property
    def heads(self) -> int:
        """All heads of a layer."""
        return heads_of_budget(self.block, self.rank, self.budget)

    @property
    def width(self) -> int:
        """Of a token inside the encoder: positions that are appended are as wide as the point itself."""
        return 2 * self.dim if self.positions.appended else self.dim

    @property
    def block(self) -> int:
        """Rank × heads of one of the `budget` blocks of attention."""
        return self.width if self.positions is Positions.AUTHORS_CONCATENATED else self.dim

    @property
    def parameters(self) -> int:
        """All weights and biases but positions, and the norms' scalars."""
        inner, width, hidden = self.budget * self.block, self.width, self.hidden
        attention = 4 * inner * width + 3 * inner + width
        return self.layers * (attention + 2 * width * hidden + hidden + width + 2)


def init(
    models: Sequence[Encoder],
    seeds: Sequence[int],
    *,
    tokens: int,
    last_scale: float = 1.0,
    last_reach: float | None = None,
    score_spread: float | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """Initial weights by the law of PyTorch's encoder layer: a member's are those of its seed, at any rank.

    Every norm's scalar starts at 1, the last one, which sets the size and sign of the output, at `last_scale`.
    By that law an entry of w_q and w_k has variance 1/(2·width), so the score of two unit tokens, a sum of rank products
    over √rank, has standard deviation 1/(2·width): every head attends to all tokens alike. `score_spread` is another
    standard deviation for it. What attention then adds to one of independent tokens has 1/√(6·tokens·budget) of its
    length, root mean square, since entries of w_v and w_o have variance 1/(2·width) and 1/(3·dim). `last_reach` is
    another such length for the last layer.
    """
    check_stack(models)
    members = [_one(model, seed, tokens, dtype) for model, seed in zip(models, seeds, strict=True)]
    weights = {name: torch.stack([member[name] for member in members]).to(device) for name in members[0]}
    weights["mlp_norm"][:, -1] = last_scale
    if last_reach is not None:
        weights["w_o"][:, -1] *= last_reach * math.sqrt(6 * tokens * models[0].budget)
    if score_spread is not None:
        for name in ("w_q", "w_k"):
            weights[name] *= math.sqrt(score_spread * 2 * models[0].width)
    return weights


@dataclass(frozen=True)
class Program:
    """How a stack is computed: the way of attention, whether MLP and norms are fused kernels, and the arrays' numbers."""

    way: Way
    fused: bool
    dtype: torch.dtype

    @property
    def ones(self) -> int:
        """Features added to a token for the sake of the biases."""
        return ONES if self.fused or self.dtype.itemsize == 2 else 1


def program_for(
    models: Sequence[Encoder], tokens: int, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> Program:
    """The fastest program that the device has for such members."""
    way = best_way([model.rank for model in models], tokens, device, dtype)
    fused = kernels.usable(device) and dtype in kernels.KINDS and models[0].width <= mlp.LARGEST_WIDTH
    return Program(way, fused, dtype)


def forward(
    models: Sequence[Encoder],
    weights: Weights,
    points: Float[Tensor, "member sample token dim"],
    program: Program | None = None,
) -> Float[Tensor, "member sample token dim"]:
    """Every token's answer: the encoder's output, its first `dim` features where positions were appended."""
    tokens = points.shape[2]
    program = program or program_for(models, tokens, points.device, points.dtype)
    leaves = leaves_of(weights, program)
    answers = encode(models, leaves, arrange(models, points, program), tokens, program)
    return _rearrange(models, answers, tokens, program)


def arrange(
    models: Sequence[Encoder], points: Float[Tensor, "member sample token dim"], program: Program
) -> Float[Tensor, "member dim position"]:
    """Features first, and each member's positions in the order its attention wants."""
    orders = [
        (0, 3, 2, 1) if token_first(program.way, rank) else (0, 3, 1, 2) for rank, _ in _rank_groups(models)
    ]
    if len(set(orders)) == 1:
        return points.permute(orders[0]).flatten(2)
    parts = [
        points[members].permute(order).flatten(2)
        for order, (_, members) in zip(orders, _rank_groups(models), strict=True)
    ]
    return torch.cat(parts)


def leaves_of(weights: Weights, program: Program) -> Leaves:
    """The weights as training holds them."""
    names = [name for name in weights if name != "positions" and name[2:] not in PARTS]
    leaves = {name: tensor for name, tensor in weights.items() if name == "positions"}
    packed = _packed(weights, program.ones).unbind(1)
    for layer, w_qkv in enumerate(packed):
        leaves[f"{layer}.w_qkv"] = w_qkv
    for name in names:
        for layer, part in enumerate(weights[name].unbind(1)):
            leaves[f"{layer}.{name}"] = part
    return leaves


def weights_of(leaves: Leaves) -> Weights:
    """`leaves_of` undone."""
    layers = list(_by_layer(leaves))
    weights = {name: torch.stack([own[name] for own in layers], dim=1) for name in layers[0]}
    packed = weights.pop("w_qkv")
    width = weights["w_o"].shape[2]
    for part, rows in zip(PARTS, packed.chunk(3, dim=2), strict=True):
        weights[f"w_{part}"] = rows[..., :width].contiguous()
        weights[f"b_{part}"] = rows[..., width].contiguous()
    return weights | {name: tensor for name, tensor in leaves.items() if name == "positions"}


def encode(
    models: Sequence[Encoder],
    leaves: Leaves,
    points: Float[Tensor, "member dim position"],
    tokens: int,
    program: Program,
) -> Float[Tensor, "member dim position"]:
    """`forward` on arranged points: what training repeats."""
    x = _with_positions(models, leaves, points, tokens, program).to(program.dtype)
    ones = _ones(x, program)
    for own in _by_layer(leaves):
        attended = _attend(models, own, torch.cat([x, ones], dim=1), tokens, program)
        x = _residual_norm(own["attention_norm"], x, attended, own["b_o"], program)
        x = _residual_norm(own["mlp_norm"], x, _mlp(own, x, program), own["b_out"], program)
    return x[:, : points.shape[1]]


def key_query_products(
    model: Encoder, weights: Weights, member: int, layer: int = 0
) -> Float[Tensor, "head width width"]:
    """M_h = W_Kᵀ W_Q of every head of a member, without the factor 1/√rank."""
    w_k, w_q = (
        weights[name][member, layer].view(model.heads, model.rank, model.width) for name in ("w_k", "w_q")
    )
    return w_k.mT @ w_q


def _rank_groups(models: Sequence[Encoder]) -> Iterator[tuple[int, slice]]:
    return rank_groups([model.rank for model in models])


def _one(model: Encoder, seed: int, tokens: int, dtype: torch.dtype) -> Weights:
    """A linear map's weight is uniform in ±bound; the bounds are those of nn.MultiheadAttention and nn.Linear."""
    layers, width, inner, hidden = model.layers, model.width, model.budget * model.block, model.hidden
    uniform = {
        "w_q": ((inner, width), math.sqrt(1.5 / width)),
        "w_k": ((inner, width), math.sqrt(1.5 / width)),
        "w_v": ((inner, width), math.sqrt(1.5 / width)),
        "w_o": ((width, inner), 1 / math.sqrt(model.block)),
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
        weights["positions"] = _places(model, seed, tokens, dtype)
    return weights


def _places(model: Encoder, seed: int, tokens: int, dtype: torch.dtype) -> Float[Tensor, "token dim"]:
    """What the positions start as."""
    shape, generator = (tokens, model.dim), stream(seed, "encoder", "positions")
    if model.positions is Positions.AUTHORS_CONCATENATED:
        return 2 * torch.rand(shape, generator=generator, dtype=dtype) - 1
    drawn = torch.randn(shape, generator=generator, dtype=dtype)
    return drawn - 1 if model.positions is Positions.AUTHORS_ADDITIVE else drawn / math.sqrt(model.dim)


def _packed(weights: Weights, ones: int) -> Float[Tensor, "member layer 3*inner width+ones"]:
    """w_q, w_k and w_v below each other, their biases beside them, and zeros."""
    w, b = (torch.cat([weights[f"{kind}_{part}"] for part in PARTS], dim=2) for kind in "wb")
    bias = b.unsqueeze(-1)
    return torch.cat([w, bias, torch.zeros_like(bias).expand(*b.shape, ones - 1)], dim=-1)


def _by_layer(leaves: Leaves) -> Iterator[Weights]:
    """Each layer's leaves, in order, by the names of their parameters."""
    layers: dict[str, Weights] = {}
    for name, tensor in leaves.items():
        layer, _, own = name.partition(".")
        if own:
            layers.setdefault(layer, {})[own] = tensor
    yield from layers.values()


def _rearrange(
    models: Sequence[Encoder], answers: Float[Tensor, "member dim position"], tokens: int, program: Program
) -> Float[Tensor, "member sample token dim"]:
    """`arrange` undone."""
    dim, samples = answers.shape[1], answers.shape[2] // tokens
    parts = []
    for rank, members in _rank_groups(models):
        if token_first(program.way, rank):
            parts.append(answers[members].reshape(-1, dim, tokens, samples).permute(0, 3, 2, 1))
        else:
            parts.append(answers[members].reshape(-1, dim, samples, tokens).permute(0, 2, 3, 1))
    return torch.cat(parts)


def _with_positions(
    models: Sequence[Encoder], leaves: Leaves, points: Tensor, tokens: int, program: Program
) -> Tensor:
    kind = models[0].positions
    if kind is Positions.NONE:
        return points
    places = leaves["positions"].unsqueeze(1).expand(-1, points.shape[2] // tokens, -1, -1)
    places = arrange(models, places, program)
    return torch.cat([points, places], dim=1) if kind.appended else points + places


def _ones(x: Tensor, program: Program) -> Tensor:
    """The features that are added to every token: a 1, and zeros."""
    ones = x.new_zeros(x.shape[0], program.ones, x.shape[2])
    ones[:, 0] = 1
    return ones


def _attend(models: Sequence[Encoder], own: Weights, x: Tensor, tokens: int, program: Program) -> Tensor:
    """(1/budget) Σ over all heads, without the output's bias; x has its ones."""
    qkv = torch.bmm(own["w_qkv"].to(x.dtype), x)
    context = attend(qkv, [model.rank for model in models], tokens, program.way)
    budget = models[0].budget
    w_o = own["w_o"] if budget == 1 else own["w_o"] / budget
    return torch.bmm(w_o.to(x.dtype), context)


def _mlp(own: Weights, x: Tensor, program: Program) -> Tensor:
    """W_out relu(W_in x + b_in), without the output's bias."""
    if program.fused and mlp.gains(x.dtype):
        return mlp.stacked_mlp(x, own["w_in"], own["b_in"], own["w_out"])
    w_in, b_in, w_out = (own[name].to(x.dtype) for name in ("w_in", "b_in", "w_out"))
    return torch.bmm(w_out, torch.relu(torch.baddbmm(b_in.unsqueeze(-1), w_in, x)))


def _residual_norm(scale: Tensor, x: Tensor, branch: Tensor, bias: Tensor, program: Program) -> Tensor:
    """z ↦ scale · z/‖z‖ for z = x + branch + bias   [amsel2024, RMSNorm]"""
    if program.fused:
        return residual_norm(x, branch, bias, scale)
    z = x + branch + bias.unsqueeze(-1)
    y = scale.view(-1, 1, 1) * z * z.square().sum(1, keepdim=True).clamp_min(SMALLEST).rsqrt()
    return y.to(x.dtype)


def check_stack(models: Sequence[Encoder]) -> None:
    """Members may differ in rank, and in nothing else."""
    if len({model.replace(rank=1) for model in models}) > 1:
        raise InputError(
            "Members of one stack may differ in rank only: at one budget rank leaves the shapes of the weights "
            "alike. Make a stack for each dim, budget, layers, hidden and positions."
        )
