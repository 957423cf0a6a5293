"""GPT-2's decoder for a stack of members, member axis first: pre-norm LayerNorm, tanh-GELU, learned positions, no dropout.

Where rank · heads is one number, the projections of every (rank, heads) pair have one shape. So members with different heads
share every matrix product, and only the cut of the channels into heads differs. In GPT-2 that number is dim; here rank and
heads are free.

A member's weights depend on its seed alone, not on its rank or the other members. They are one tensor per layer,
`layer.name`, and (member, out, in) for a linear map. Activations are (member, position, feature), positions are samples times
tokens. With 16-bit arrays the residual stream stays float32, as under autocast.
"""

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from rankscope.core import Config, InputError
from rankscope.core.streams import stream
from rankscope.kernels import usable
from rankscope.kernels.add_norm import LARGEST_DIM, add_norm
from rankscope.kernels.bias_gelu import bias_gelu
from rankscope.kernels.causal_attention import causal_attention, gains
from rankscope.kernels.small_attention import by_products
from rankscope.linalg.weights import Weights

INIT = 0.02
"""Standard deviation of GPT-2's initial weights."""

EPSILON = 1e-5
"""Of GPT-2's LayerNorm."""

SHORT, LOW = 24, 8
"""Most tokens and highest rank whose attention a CPU computes faster by products of whole arrays, in float32."""


class Decoder(Config):
    """Reads vectors of `input_dim` features, of at most `tokens` tokens, and writes one number at every token."""

    input_dim: int = Field(ge=1)
    dim: int = Field(ge=1)
    rank: int = Field(ge=1)
    heads: int = Field(ge=1)
    layers: int = Field(ge=1)
    tokens: int = Field(ge=1)

    @property
    def inner(self) -> int:
        """Channels of attention, all heads together."""
        return self.rank * self.heads

    @property
    def hidden(self) -> int:
        """Neurons of the MLP."""
        return 4 * self.dim

    @property
    def parameters(self) -> int:
        """All weights and biases."""
        return sum(math.prod(shape) for shape, _ in _shapes(self).values())


def check_stack(models: Sequence[Decoder]) -> None:
    """Members may differ in rank and heads, and in nothing else."""
    if len({model.replace(rank=model.inner, heads=1) for model in models}) > 1:
        raise InputError(
            "Members of one stack may differ in rank and heads only, with one product rank · heads. "
            "Make a stack for each product, dim, input_dim, layers and tokens."
        )


def init(models: Sequence[Decoder], seeds: Sequence[int], *, device: str = "cpu") -> Weights:
    """GPT-2's initial weights: normal with standard deviation .02, over √(2·layers) for maps into the residual stream.

    Read-in and read-out start as nn.Linear, uniform in ±1/√features.
    """
    check_stack(models)
    members = [_one(model, seed) for model, seed in zip(models, seeds, strict=True)]
    return {name: torch.stack([member[name] for member in members]).to(device) for name in members[0]}


def forward(
    models: Sequence[Decoder],
    weights: Weights,
    inputs: Float[Tensor, "member sample token input_dim"],
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "member sample token"]:
    """The number at every token; `dtype` is that of products and branches, and of matrices that are given in it already."""
    samples, tokens = inputs.shape[1:3]
    # a product for each sample: the weights' gradient is small and a sum over very many positions, slow as one product
    read = torch.matmul(inputs, weights["w_read"].mT.unsqueeze(1)).flatten(1, 2)
    x = weights["positions"][:, None, :tokens].expand(-1, samples, -1, -1).flatten(1, 2)
    branch, bias = read, weights["b_read"]
    for layer in range(models[0].layers):
        own = {name: weights[f"{layer}.{name}"] for name in _LAYER}
        x, normed = _add_norm(x, branch, bias, own["gain_1"], own["shift_1"], dtype)
        branch, bias = _product(_attend(models, own, normed, tokens), own["w_o"]), own["b_o"]
        x, normed = _add_norm(x, branch, bias, own["gain_2"], own["shift_2"], dtype)
        hidden = _bias_gelu(_product(normed, own["w_in"]), own["b_in"])
        branch, bias = _product(hidden, own["w_out"]), own["b_out"]
    _, normed = _add_norm(x, branch, bias, weights["gain"], weights["shift"], x.dtype)
    out = torch.baddbmm(weights["b_answer"].unsqueeze(1), normed, weights["w_answer"].mT)
    return out.view(len(x), samples, tokens)


def is_layers_map(name: str) -> bool:
    """Whether a weight is one of a layer's linear maps, which are cast to the numbers of branches."""
    return name.rpartition(".")[2] in ("w_qkv", "w_o", "w_in", "w_out")


def head_maps(
    model: Decoder, weights: Weights, member: int, layer: int
) -> tuple[Float[Tensor, "head rank dim"], Float[Tensor, "head rank dim"]]:
    """W_Q and W_K of every head of a member."""
    w_q, w_k, _ = weights[f"{layer}.w_qkv"][member].chunk(3)
    shape = (model.heads, model.rank, model.dim)
    return w_q.reshape(shape), w_k.reshape(shape)


def _add_norm(
    x: Tensor, branch: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The residual stream with a branch and its bias added to it, and its LayerNorm."""
    if usable(x.device) and x.shape[-1] <= LARGEST_DIM:
        return add_norm(x, branch, bias, gain, shift, EPSILON, dtype)
    x = x + branch + bias.unsqueeze(1)
    plain = functional.layer_norm(x, x.shape[-1:], eps=EPSILON)
    return x, torch.addcmul(shift.unsqueeze(1), plain, gain.unsqueeze(1)).to(dtype)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x, weight.to(x.dtype).mT)


def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    if usable(x.device):
        return bias_gelu(x, bias)
    return functional.gelu(x + bias.unsqueeze(1).to(x.dtype), approximate="tanh")


def _attend(models: Sequence[Decoder], own: Weights, x: Tensor, tokens: int) -> Tensor:
    """Causal attention by every member's own heads: one call for those that our kernel takes, one per rank for the others."""
    qkv, samples = _product(x, own["w_qkv"]), x.shape[1] // tokens
    calls = [
        list(ranks)
        for _, ranks in groupby(
            (model.rank for model in models),
            lambda rank: gains(rank, samples, qkv.dtype, qkv.device) or rank,
        )
    ]
    # slices would each have a gradient of the whole array's size
    sizes = [len(ranks) for ranks in calls]
    parts, biases = (
        array.split_with_sizes(sizes) if len(calls) > 1 else [array] for array in (qkv, own["b_qkv"])
    )
    contexts = [
        causal_attention(part, bias, ranks, tokens)
        if gains(ranks[0], samples, part.dtype, part.device)
        else _by_rank(part + bias.unsqueeze(1).to(part.dtype), ranks[0], tokens)
        for ranks, part, bias in zip(calls, parts, biases, strict=True)
    ]
    return torch.cat(contexts) if len(contexts) > 1 else contexts[0]


def _by_rank(qkv: Tensor, rank: int, tokens: int) -> Tensor:
    """Causal attention by heads of one rank: by products of whole arrays where that is faster, or by torch's kernel."""
    members, positions, width = qkv.shape
    heads = qkv.reshape(members, -1, tokens, 3, width // 3 // rank, rank)
    if (qkv.device.type, qkv.dtype) == ("cpu", torch.float32) and tokens <= SHORT and rank <= LOW:
        q, k, v = heads.permute(3, 0, 4, 5, 2, 1)
        context = by_products(q, k, v, causal=True).permute(0, 4, 3, 1, 2)
    else:
        q, k, v = heads.flatten(0, 1).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    return context.reshape(members, positions, -1)


_LAYER = (
    "gain_1",
    "shift_1",
    "w_qkv",
    "b_qkv",
    "w_o",
    "b_o",
    "gain_2",
    "shift_2",
    "w_in",
    "b_in",
    "w_out",
    "b_out",
)


def _shapes(model: Decoder) -> dict[str, tuple[tuple[int, ...], float]]:
    """Every parameter's shape and the standard deviation it starts with."""
    dim, inner, hidden, into = model.dim, model.inner, model.hidden, INIT / math.sqrt(2 * model.layers)
    layer = {
        "gain_1": ((dim,), 0.0), "shift_1": ((dim,), 0.0),
        "w_qkv": ((3 * inner, dim), INIT), "b_qkv": ((3 * inner,), 0.0),
        "w_o": ((dim, inner), into), "b_o": ((dim,), 0.0),
        "gain_2": ((dim,), 0.0), "shift_2": ((dim,), 0.0),
        "w_in": ((hidden, dim), INIT), "b_in": ((hidden,), 0.0),
        "w_out": ((dim, hidden), into), "b_out": ((dim,), 0.0),
    }  # fmt: skip
    shapes: dict[str, tuple[tuple[int, ...], float]] = {
        "w_read": ((dim, model.input_dim), 1 / math.sqrt(model.input_dim)),
        "b_read": ((dim,), 1 / math.sqrt(model.input_dim)),
        "positions": ((model.tokens, dim), INIT),
    }
    for place in range(model.layers):
        shapes |= {f"{place}.{name}": layer[name] for name in _LAYER}
    return shapes | {
        "gain": ((dim,), 0.0), "shift": ((dim,), 0.0),
        "w_answer": ((1, dim), 1 / math.sqrt(dim)), "b_answer": ((1,), 1 / math.sqrt(dim)),
    }  # fmt: skip


def _one(model: Decoder, seed: int) -> Weights:
    """Gains start at 1; read-in and read-out are uniform, all else that is not 0 is normal."""
    weights = {}
    for name, (shape, size) in _shapes(model).items():
        generator = stream(seed, "decoder", name)
        if name.rpartition(".")[2].startswith("gain"):
            weights[name] = torch.ones(shape)
        elif name.endswith(("_read", "_answer")):
            weights[name] = (2 * torch.rand(shape, generator=generator) - 1) * size
        else:
            weights[name] = size * torch.randn(shape, generator=generator)
    return weights
