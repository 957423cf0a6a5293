"""The state of a stack as one state per member, and back: a training goes on among other members than it began with."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rankscope.training.state import State


def parted(state: State) -> list[State]:
    """The state of every member, as that of a stack of one."""
    return [
        _with(state, [state], lambda tensors, axis, at=at: tensors[0].narrow(axis, at, 1).clone())
        for at in range(state["losses"].shape[1])
    ]


def joined(states: Sequence[State]) -> State:
    """The state of a stack of such members, in their order; all have taken as many steps."""
    return _with(states[0], states, lambda tensors, axis: torch.cat(list(tensors), axis))


def _with(like: State, states: Sequence[State], change: Callable[..., Tensor]) -> State:
    """A state whose tensors with a member axis are `change` of those of the states; all else is that of the first."""

    def first_axis(name: str) -> dict[str, Tensor]:
        return {key: change([one[name][key] for one in states], 0) for key in like[name]}

    def of_optimizer() -> dict[str, Any]:
        each = [one["optimizer"]["state"] for one in states]
        moments = {
            number: {
                key: change([one[number][key] for one in each], 0) if value.dim() else value.clone()
                for key, value in own.items()
            }
            for number, own in like["optimizer"]["state"].items()
        }
        return {"state": moments, "param_groups": like["optimizer"]["param_groups"]}

    return {
        "weights": first_axis("weights"),
        "optimizer": of_optimizer(),
        "losses": change([one["losses"] for one in states], 1),
        "scale": None if like["scale"] is None else first_axis("scale"),
    }
