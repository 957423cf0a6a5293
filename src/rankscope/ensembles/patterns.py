"""The one-layer, one-head transformer of li2024, equation (1), for a stack of members, with two classes or with k.

F(X) = 1/L Σ_l a_(l)ᵀ relu(W_O W_V X softmax(Xᵀ W_Kᵀ W_Q x_l))

With k classes every neuron speaks for one of them, drawn once and fixed, as the sign of a_i is in equation (1):

F_c(X) = 1/L Σ_l Σ_{i owned by c} 1/√m · relu(o_i · W_V X softmax(Xᵀ W_Kᵀ W_Q x_l))

For k = 2, F = F_1 − F_2 is equation (1): a neuron owned by the first class has a_i > 0. The two share all but the
gradient behind attention: by signs it takes fewer operations, which benchmarks/ensemble.py counts on, and rounds otherwise.

Weights are a dictionary of tensors with the member axis first: w_q and w_k (rank × dim), w_v (value_rank × dim),
w_o (hidden × value_rank), the fixed output weights a (hidden, or token × hidden) and, with k classes, the fixed `owner`
(class × hidden, 1 where the class owns the neuron). Labels are +1 and −1, or with k classes the number of the class.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.linalg.weights import Weights

TRAINED = ("w_q", "w_k", "w_v", "w_o")
"""The weights that training changes; `a` and `owner` stay as they were drawn."""


class Init(StrEnum):
    """The diagonal of W_Q, W_K and W_V at the start."""

    THEORY = "theory"  # δ (section II)
    EXPERIMENT = "experiment"  # δ² (section IV)


class Output(StrEnum):
    """Whether all positions share one output vector a, or each has its own."""

    SHARED = "shared"
    PER_POSITION = "per_position"


class OneLayer(Config):
    """Sizes and initialisation of the one-layer transformer."""

    dim: int = Field(default=20, ge=1)
    rank: int = Field(default=20, ge=1)
    value_rank: int = Field(default=20, ge=1)
    hidden: int = Field(default=200, ge=1)
    init: Init = Init.EXPERIMENT
    init_scale: float = Field(default=0.1, gt=0)
    init_noise: float = Field(default=0.1, ge=0)
    output: Output = Output.SHARED


class ManyClass(OneLayer):
    """The same with an output for each of several classes."""

    classes: int = Field(default=2, ge=2)

    @model_validator(mode="after")
    def _owners_are_shared(self) -> "ManyClass":
        if self.output is not Output.SHARED:
            raise ValueError("A neuron is owned by one class at every position. Set output to 'shared'.")
        return self


def init(
    models: Sequence[OneLayer],
    seeds: Sequence[int],
    *,
    tokens: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """The weights at step 0, one member per (model, seed); the models differ in numbers, not in shapes.

    A neuron's owner is drawn where equation (1) draws its sign, so that with two classes they are the same coin.
    """

    def member(model: OneLayer, seed: int) -> Weights:
        scale = model.init_scale if model.init is Init.THEORY else model.init_scale**2
        draw = stream(seed, "weights")
        drawn = (model.hidden,) if model.output is Output.SHARED else (tokens, model.hidden)
        classes = model.classes if isinstance(model, ManyClass) else 2
        coin = torch.randint(0, classes, drawn, generator=draw, dtype=torch.float64)
        noise = torch.randn(model.hidden, model.value_rank, generator=draw, dtype=torch.float64)
        weights = {
            "w_q": scale * torch.eye(model.rank, model.dim, dtype=torch.float64),
            "w_k": scale * torch.eye(model.rank, model.dim, dtype=torch.float64),
            "w_v": scale * torch.eye(model.value_rank, model.dim, dtype=torch.float64),
            "w_o": model.init_noise * noise,
        }
        if isinstance(model, ManyClass):
            owner = torch.arange(classes).unsqueeze(-1) == classes - 1 - coin
            return {**weights, "a": torch.ones_like(coin) / model.hidden**0.5, "owner": owner}
        return {**weights, "a": (2 * coin - 1) / model.hidden**0.5}

    members = [member(model, seed) for model, seed in zip(models, seeds, strict=True)]
    return {name: torch.stack([m[name] for m in members]).to(device, dtype) for name in members[0]}


def attention(
    weights: Weights, x: Float[Tensor, "member sample token dim"]
) -> Float[Tensor, "member sample query key"]:
    """softmax over keys j of x_jᵀ W_Kᵀ W_Q x_l, a row for each query l."""
    queries = torch.einsum("mbld,mrd->mblr", x, weights["w_q"])
    keys = torch.einsum("mbld,mrd->mblr", x, weights["w_k"])
    return torch.softmax(queries @ keys.transpose(-1, -2), dim=-1)


def neuron_outputs(
    weights: Weights,
    x: Float[Tensor, "member sample token dim"],
    attended: Float[Tensor, "member sample query key"],
) -> Float[Tensor, "member sample hidden"]:
    """What each neuron adds to F(X): mean over positions l of a_(l)i · relu(o_i · z_l). They sum to F(X)."""
    values = torch.einsum("mbld,mrd->mblr", x, weights["w_v"])
    neurons = torch.einsum("mblr,mhr->mblh", attended @ values, weights["w_o"]).relu_()
    a = weights["a"]
    if a.ndim == 2:
        return neurons.mean(2).mul_(a.unsqueeze(1))
    return torch.einsum("mblh,mlh->mbh", neurons, a) / x.shape[2]


def outputs(
    weights: Weights, parts: Float[Tensor, "member sample hidden"]
) -> Float[Tensor, "member sample *classes"]:
    """What the neurons add up to: all of them, or those of each class."""
    return parts @ weights["owner"].mT if "owner" in weights else parts.sum(-1)


def forward(
    weights: Weights, x: Float[Tensor, "member sample token dim"]
) -> Float[Tensor, "member sample *classes"]:
    """F(X), equation (1), or F_c(X) for every class."""
    return outputs(weights, neuron_outputs(weights, x, attention(weights, x)))


def hinge(
    output: Float[Tensor, "member sample *classes"],
    labels: Float[Tensor, "member sample"] | Int[Tensor, "member sample"],
) -> Float[Tensor, "member sample"]:
    """max(1 − y F(X), 0), equation (3); with k classes that of Weston and Watkins, averaged over the rivals.

    1/(k−1) Σ_{j≠y} max(1 − (F_y − F_j), 0) is 1 where all outputs are equal, whatever k, and equation (3) for k = 2.
    """
    if output.ndim == labels.ndim:
        return (1 - labels * output).clamp(min=0)
    return _mean_over_rivals(_excess(output, labels))


def accuracy(
    output: Float[Tensor, "member sample classes"], winner: Int[Tensor, "member sample"]
) -> Float[Tensor, " member"]:
    """How often the largest output is the winner's."""
    return (output.argmax(-1) == winner).to(output.dtype).mean(-1)


class Attended(NamedTuple):
    """Queries, keys, values, attention p and what it reads, z = p·v, with members and samples on one axis."""

    q: Float[Tensor, "row token rank"]
    k: Float[Tensor, "row token rank"]
    v: Float[Tensor, "row token value"]
    p: Float[Tensor, "row token token"]
    z: Float[Tensor, "row token value"]

    def gradients(
        self, x: Float[Tensor, "member sample token dim"], dz: Float[Tensor, "row token value"]
    ) -> Weights:
        """The gradient in w_q, w_k and w_v from that in z."""
        stacked = (len(x), x.shape[1] * x.shape[2], -1)
        flat = x.reshape(stacked)
        dp = torch.bmm(dz, self.v.mT)
        ds = dp.sub_((dp * self.p).sum(-1, keepdim=True)).mul_(self.p)
        return {
            "w_q": torch.bmm(torch.bmm(ds, self.k).view(stacked).mT, flat),
            "w_k": torch.bmm(torch.bmm(ds.mT, self.q).view(stacked).mT, flat),
            "w_v": torch.bmm(torch.bmm(self.p.mT, dz).view(stacked).mT, flat),
        }


def attend(weights: Weights, x: Float[Tensor, "member sample token dim"]) -> Attended:
    """The attention layer with all that its gradient needs."""
    members, samples, tokens = x.shape[:3]
    flat, single = x.reshape(members, samples * tokens, -1), (members * samples, tokens, -1)
    w_q, w_k, w_v = (weights[name] for name in ("w_q", "w_k", "w_v"))
    projected = torch.bmm(flat, torch.cat([w_q, w_k, w_v], dim=1).mT).view(single)
    q, k, v = torch.split(projected, [w_q.shape[1], w_k.shape[1], w_v.shape[1]], dim=-1)
    p = _softmax_(torch.bmm(q, k.mT))
    return Attended(q, k, v, p, torch.bmm(p, v))


def hinge_gradients(
    weights: Weights,
    x: Float[Tensor, "member sample token dim"],
    labels: Float[Tensor, "member sample"] | Int[Tensor, "member sample"],
) -> tuple[Float[Tensor, " member"], Weights]:
    """Mean hinge loss of a batch and its gradient in every trained weight, by hand."""
    return (_class_gradients if "owner" in weights else _sign_gradients)(weights, x, labels)


def _sign_gradients(
    weights: Weights, x: Float[Tensor, "member sample token dim"], labels: Float[Tensor, "member sample"]
) -> tuple[Float[Tensor, " member"], Weights]:
    """`hinge_gradients` of equation (3).

    With s = 1[W_O z > 0] and u = (s∘a) W_O, relu gives F = mean_l z_l·u_l and dF/dz = u/L, so the one large
    array (token × hidden) is written once, compared in place, and read by two products.
    """
    members, samples, tokens = x.shape[:3]
    w_o, a = weights["w_o"], weights["a"]
    stacked, single = (members, samples * tokens, -1), (members * samples, tokens, -1)
    attended = attend(weights, x)
    z = attended.z.view(stacked)

    active = torch.bmm(z, w_o.mT).gt_(0)
    if a.ndim == 2:
        signed = a.unsqueeze(-1) * w_o
    else:
        active.view(members, samples, tokens, -1).mul_(a.unsqueeze(1))
        signed = w_o
    u = torch.bmm(active, signed)
    output = (z * u).view(members, samples, -1).sum(-1) / tokens
    loss = hinge(output, labels)

    pull = torch.where(loss > 0, labels, 0.0).div_(-samples * tokens).view(-1, 1, 1)
    grad_o = torch.bmm((z.view(single) * pull).view(stacked).mT, active).mT
    if a.ndim == 2:
        grad_o = grad_o * a.unsqueeze(-1)
    return loss.mean(-1), {**attended.gradients(x, u.view(single).mul_(pull)), "w_o": grad_o}


def _class_gradients(
    weights: Weights, x: Float[Tensor, "member sample token dim"], winner: Int[Tensor, "member sample"]
) -> tuple[Float[Tensor, " member"], Weights]:
    """`hinge_gradients` with k classes.

    A rival j that is within the margin pulls F_j down and F_y up; a neuron feels the pull on the class that owns it.
    """
    members, samples, tokens = x.shape[:3]
    w_o, a, owner = weights["w_o"], weights["a"].unsqueeze(1), weights["owner"]
    stacked = (members, samples * tokens, -1)
    attended = attend(weights, x)
    z = attended.z.view(stacked)

    hidden = torch.bmm(z, w_o.mT).view(members, samples, tokens, -1)
    excess = _excess(outputs(weights, hidden.relu().mean(2).mul_(a)), winner)
    loss = _mean_over_rivals(excess)
    pull = (excess > 0).to(x.dtype)
    pull.scatter_add_(-1, winner.unsqueeze(-1), -pull.sum(-1, keepdim=True))
    felt = (pull @ owner).mul_(a / ((excess.shape[-1] - 1) * samples * tokens))
    active = hidden.gt_(0).mul_(felt.unsqueeze(2)).view(stacked)

    dz = torch.bmm(active, w_o).view_as(attended.z)
    return loss.mean(-1), {**attended.gradients(x, dz), "w_o": torch.bmm(active.mT, z)}


def _excess(
    output: Float[Tensor, "member sample classes"], winner: Int[Tensor, "member sample"]
) -> Float[Tensor, "member sample classes"]:
    """max(1 − (F_y − F_j), 0) for every rival j, and 0 for the winner y itself."""
    place = winner.unsqueeze(-1)
    return (1 - output.gather(-1, place) + output).clamp(min=0).scatter(-1, place, 0.0)


def _mean_over_rivals(excess: Float[Tensor, "member sample classes"]) -> Float[Tensor, "member sample"]:
    return excess.sum(-1) / (excess.shape[-1] - 1)


def _softmax_(scores: Float[Tensor, "row query key"]) -> Float[Tensor, "row query key"]:
    """Softmax over keys in place. For rows this short the library's own takes five times longer."""
    scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return scores.div_(scores.sum(-1, keepdim=True))
