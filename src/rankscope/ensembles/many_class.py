"""The one-layer transformer of li2024 with k classes, for a stack of members.

F_c(X) = 1/L Σ_l Σ_{i owned by c} 1/√m · relu(o_i · W_V X softmax(Xᵀ W_Kᵀ W_Q x_l))

Every neuron speaks for one class, drawn once and fixed, as the sign of a_i is in equation (1). With two classes
F = F_1 − F_2 is that equation: a neuron owned by the first has a_i > 0.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.ensembles import one_layer
from rankscope.ensembles.one_layer import OneLayer, Output
from rankscope.linalg.weights import Weights


class ManyClass(OneLayer):
    """Sizes and initialisation of the one-layer transformer with several outputs."""

    classes: int = Field(default=2, ge=2)

    @model_validator(mode="after")
    def _owners_are_shared(self) -> "ManyClass":
        if self.output is not Output.SHARED:
            raise ValueError("A neuron is owned by one class at every position. Set output to 'shared'.")
        return self


def init(
    models: Sequence[ManyClass],
    seeds: Sequence[int],
    *,
    tokens: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """The weights of `one_layer.init`, and `owner` (class × hidden, 1 where the class owns the neuron).

    The owner is drawn where equation (1) draws the sign, so that with two classes they are the same coin.
    """
    weights = one_layer.init(models, seeds, tokens=tokens, device=device, dtype=dtype)

    def owner(model: ManyClass, seed: int) -> Tensor:
        shape, draw = (model.hidden,), stream(seed, "weights")
        drawn = torch.randint(0, model.classes, shape, generator=draw, dtype=torch.float64)
        return torch.arange(model.classes).unsqueeze(-1) == model.classes - 1 - drawn

    owners = torch.stack([owner(model, seed) for model, seed in zip(models, seeds, strict=True)])
    return {**weights, "a": weights["a"].abs(), "owner": owners.to(device, dtype)}


def forward(
    weights: Weights, x: Float[Tensor, "member sample token dim"]
) -> Float[Tensor, "member sample classes"]:
    """F_c(X) for every class."""
    return class_sums(weights, one_layer.neuron_outputs(weights, x, one_layer.attention(weights, x)))


def class_sums(
    weights: Weights, parts: Float[Tensor, "member sample hidden"]
) -> Float[Tensor, "member sample classes"]:
    """What the neurons of each class add up to."""
    return parts @ weights["owner"].mT


def hinge(
    outputs: Float[Tensor, "member sample classes"], winner: Int[Tensor, "member sample"]
) -> Float[Tensor, "member sample"]:
    """The hinge of Weston and Watkins, averaged over the rivals: 1/(k−1) Σ_{j≠y} max(1 − (F_y − F_j), 0).

    1 where all outputs are equal, whatever k, and equation (3) for k = 2.
    """
    return _mean_over_rivals(_excess(outputs, winner))


def accuracy(
    outputs: Float[Tensor, "member sample classes"], winner: Int[Tensor, "member sample"]
) -> Float[Tensor, " member"]:
    """How often the largest output is the winner's."""
    return (outputs.argmax(-1) == winner).to(outputs.dtype).mean(-1)


def hinge_gradients(
    weights: Weights, x: Float[Tensor, "member sample token dim"], winner: Int[Tensor, "member sample"]
) -> tuple[Float[Tensor, " member"], Weights]:
    """Mean hinge loss of a batch and its gradient in every trained weight, by hand.

    A rival j that is within the margin pulls F_j down and F_y up; a neuron feels the pull on the class that owns it.
    """
    members, samples, tokens = x.shape[:3]
    w_o, a, owner = weights["w_o"], weights["a"].unsqueeze(1), weights["owner"]
    stacked = (members, samples * tokens, -1)
    attended = one_layer.attend(weights, x)
    z = attended.z.view(stacked)

    hidden = torch.bmm(z, w_o.mT).view(members, samples, tokens, -1)
    excess = _excess(class_sums(weights, hidden.relu().mean(2).mul_(a)), winner)
    loss = _mean_over_rivals(excess)
    pull = (excess > 0).to(x.dtype)
    pull.scatter_add_(-1, winner.unsqueeze(-1), -pull.sum(-1, keepdim=True))
    felt = (pull @ owner).mul_(a / ((excess.shape[-1] - 1) * samples * tokens))
    active = hidden.gt_(0).mul_(felt.unsqueeze(2)).view(stacked)

    dz = torch.bmm(active, w_o).view_as(attended.z)
    return loss.mean(-1), {**attended.gradients(x, dz), "w_o": torch.bmm(active.mT, z)}


def _excess(
    outputs: Float[Tensor, "member sample classes"], winner: Int[Tensor, "member sample"]
) -> Float[Tensor, "member sample classes"]:
    """max(1 − (F_y − F_j), 0) for every rival j, and 0 for the winner y itself."""
    place = winner.unsqueeze(-1)
    return (1 - outputs.gather(-1, place) + outputs).clamp(min=0).scatter(-1, place, 0.0)


def _mean_over_rivals(excess: Float[Tensor, "member sample classes"]) -> Float[Tensor, "member sample"]:
    return excess.sum(-1) / (excess.shape[-1] - 1)
