"""What passes through every head on data: second moments of queries, keys and mixed values, and the loss's slope on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core.streams import stream
from rankscope.scope.head_space import HeadSpace, Product, by_role, module_of
from rankscope.scope.neurons import ModelInputs, gives_loss, on_device, told

Seen = Callable[[HeadSpace, str, Tensor], None]
"""told the space, the part (q, k or o) and what passes through it: (group, head, rank, token)"""


def space_moments(
    model: Any, spaces: Sequence[HeadSpace], batches: Sequence[ModelInputs]
) -> dict[tuple[str, Product], tuple[Tensor, Tensor]]:
    """Per space the moments of both sides, for `balanced_directions`: (left, right), each (group, rank, rank).

    For QK they are the covariance of the keys and E[q qᵀ], summed over a group's heads: what all keys share adds the same
    to every score of a query, and softmax does not see it. For OV they are w_oᵀw_o and E[z zᵀ], z being the mix of values
    that a head hands to w_o.
    """
    sums: dict[tuple[str, Product, str], tuple[Tensor, Tensor, int]] = {}

    def see(space: HeadSpace, part: str, values: Tensor) -> None:
        values = values.double()
        second = values @ values.mT
        before = sums.get((*space.key, part))
        new = (second.sum(1), values.sum((1, 3)), values.shape[3])
        sums[*space.key, part] = (
            new if before is None else (before[0] + new[0], before[1] + new[1], before[2] + new[2])
        )

    with _watched(model, spaces, see), torch.no_grad():
        for batch in batches:
            _output(model, batch)
    found = {}
    for space in spaces:
        if space.product == Product.QK:
            (q, _, queries), (k, k_sum, keys) = sums[*space.key, "q"], sums[*space.key, "k"]
            mean = k_sum / keys
            found[space.key] = (k / keys - mean[..., :, None] * mean[..., None, :], q / queries)
        else:
            z, _, tokens = sums[*space.key, "o"]
            found[space.key] = (_output_moment(model, space).to(z.device), z / tokens)
    return found


def weight_moments(
    model: Any, spaces: Sequence[HeadSpace]
) -> dict[tuple[str, Product], tuple[Tensor, Tensor]]:
    """The same moments for inputs of which nothing is known: truncation by them is the plain SVD of the products."""
    found = {}
    for space in spaces:
        rows = {part: value.flatten(3).double() for part, value in _weights(model, space).items()}
        second = {part: (value @ value.mT).sum(1) for part, value in rows.items()}
        found[space.key] = (
            (second["k"], second["q"])
            if space.product == Product.QK
            else (_output_moment(model, space), second["v"])
        )
    return found


def loss_slopes(
    model: Any, spaces: Sequence[HeadSpace], batches: Sequence[ModelInputs]
) -> dict[tuple[str, Product], Float[Tensor, "group rank"]]:
    """How much the loss is expected to move when a unit of coordinates goes, by the square of its slope at each token.

    A coordinate c that becomes zero moves the loss by −g·c to first order, g being the gradient. What is summed is the
    square, Σ (Σ_{heads, unit} g c)² over tokens: the empirical Fisher information along that change.
    """
    total: dict[tuple[str, Product], Tensor] = {}
    kept: list[tuple[HeadSpace, Tensor, Tensor]] = []

    def see(space: HeadSpace, part: str, values: Tensor) -> None:
        if part != "k" and values.requires_grad:
            values.retain_grad()
            kept.append((space, values, values.detach()))

    with _watched(model, spaces, see, differentiable=True), torch.enable_grad():
        for number, batch in enumerate(batches):
            kept.clear()
            torch.autograd.backward(objective(model, batch, number))
            for space, values, plain in kept:
                if values.grad is None:
                    continue
                moved = (values.grad * plain).double().sum(1)  # group, rank, token
                units = space.units.to(moved.device)
                by_unit = torch.zeros_like(moved).index_add_(1, units, moved)
                square = by_unit.square().sum(-1)[:, units]
                total[space.key] = total.get(space.key, torch.zeros_like(square)) + square
            model.zero_grad(set_to_none=True)
    return total


def objective(model: Any, batch: ModelInputs, number: int) -> Tensor:
    """The loss of a batch; for a model without one its embeddings along random signs, whose slope is that of their distance.

    The mean over signs of the squared slope is the squared movement of the embeddings.
    """
    if gives_loss(model):
        loss: Tensor = _output(model, batch).loss
        return loss
    hidden = _output(model, batch).last_hidden_state.mean(1)
    signs = torch.randint(0, 2, hidden.shape, generator=stream(0, "signs", number)).to(hidden) * 2 - 1
    return (torch.nn.functional.normalize(hidden, dim=-1) * signs).sum()


def _output(model: Any, batch: ModelInputs) -> Any:
    given = on_device(model, batch)
    if "labels" not in given and "input_ids" in given and gives_loss(model):
        given["labels"] = given["input_ids"]
    with told(model, given):
        return model(**given)


@contextmanager
def _watched(
    model: Any, spaces: Sequence[HeadSpace], see: Seen, *, differentiable: bool = False
) -> Iterator[None]:
    """Hooks on the projections of every space, taken off at the end."""
    hooks = []
    by_name = {space.key: space for space in spaces}
    blocks = {space.block.name: space.block for space in spaces}

    def watch_projection(name: str, role: str) -> Callable[..., Any]:
        def hook(_: Any, __: Any, output: Tensor) -> Tensor | None:
            block = blocks[name]
            space = by_name.get((name, Product.QK))
            if space is None:
                return None
            rows = output.flatten(0, -2).T
            parts = by_role(block, role, rows)
            for part in ("q", "k"):
                if part in parts:
                    see(space, part, parts[part])
            if not (differentiable and "q" in parts):
                return None
            joined = rows.clone()
            index = by_role(block, role, torch.arange(len(rows), device=rows.device))["q"]
            joined[index] = parts["q"]
            return joined.T.reshape(output.shape)

        return hook

    def watch_output(name: str) -> Callable[..., Any]:
        def hook(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            block, space = blocks[name], by_name.get((name, Product.OV))
            if space is None:
                return None
            mixed = inputs[0]
            parts = mixed.flatten(0, -2).T.reshape(block.groups, -1, block.head_dim, mixed[..., 0].numel())
            see(space, "o", parts)
            return (parts.flatten(0, 2).T.reshape(mixed.shape), *inputs[1:]) if differentiable else None

        return hook

    for name, block in blocks.items():
        for role, weight in block.weights.items():
            module = model.get_submodule(module_of(weight))
            if role == "o":
                hooks.append(module.register_forward_pre_hook(watch_output(name)))
            elif role != "v":
                hooks.append(module.register_forward_hook(watch_projection(name, role)))
    try:
        yield
    finally:
        for one in hooks:
            one.remove()


def _weights(model: Any, space: HeadSpace) -> dict[str, Tensor]:
    """The weights of a block's queries, keys and values: (group, head, rank, input)."""
    block = space.block
    found: dict[str, Tensor] = {}
    for role, name in block.weights.items():
        if role != "o":
            value = model.get_parameter(name).detach()
            found |= by_role(block, role, value.T if block.layout.transposed else value)
    return found


def _output_moment(model: Any, space: HeadSpace) -> Float[Tensor, "group rank rank"]:
    """w_oᵀ w_o, summed over the heads of each group."""
    block = space.block
    value = model.get_parameter(block.weights["o"]).detach()
    columns = (value if block.layout.transposed else value.T).double()
    heads = columns.reshape(block.groups, -1, block.head_dim, columns.shape[-1])
    moment: Tensor = (heads @ heads.mT).sum(1)
    return moment
