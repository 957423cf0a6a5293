"""Losses are scaled for the sake of gradients that pass through float16, each member's by a factor of its own."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.linalg.weights import Weights
from rankscope.training.state import State

GROW_AFTER = 1000
"""Steps without overflow after which a factor that was halved doubles again."""

SMALLEST = 1.0
"""No factor is halved below it: a gradient that overflows unscaled is that of a member whose training has failed."""


class LossScale:
    """A factor for every member: `first`, halved by each of its overflows, and doubled again, up to `first`, where none came.

    In the step of an overflow the member has no gradient; in the next it has half the factor. So gradients that stay large
    cost a member a few steps, and not all that follow. Factors are powers of two, which change no digit of a gradient.
    Where the loss itself overflowed, on the way forward, no factor would have helped, and it stays as it is.
    """

    def __init__(self, first: float, members: int, device: torch.device) -> None:
        self.first = first
        self.factors = torch.full((members,), first, device=device)
        self.clean = torch.zeros(members, dtype=torch.int64, device=device)

    def divide_in(self, optimizer: torch.optim.AdamW) -> None:
        """Have the fused step divide every gradient by `first` as it reads it, which costs nothing."""
        # the attributes that torch's own gradient scaler sets
        optimizer.grad_scale = torch.tensor(self.first, device=self.factors.device)  # type: ignore[attr-defined]
        optimizer.found_inf = torch.zeros((), device=self.factors.device)  # type: ignore[attr-defined]

    @torch.no_grad()
    def settle(self, weights: Weights, losses: Float[Tensor, " member"]) -> Bool[Tensor, " member"]:
        """Bring all gradients to the scale `first`, and to zero where a member's overflowed; returns which members' did."""
        grads = [tensor.grad for tensor in weights.values() if tensor.grad is not None]
        sums = torch.stack([grad.reshape(len(grad), -1).sum(1) for grad in grads]).sum(0)
        lost = ~sums.isfinite()
        missing = self.first / self.factors
        for grad in grads:
            others = (-1, *[1] * (grad.dim() - 1))
            grad.mul_(missing.view(others)).masked_fill_(lost.view(others), 0.0)
        self._follow(lost & losses.isfinite())
        return lost

    def _follow(self, lost: Bool[Tensor, " member"]) -> None:
        self.clean.add_(1).masked_fill_(lost, 0)
        grows = self.clean >= GROW_AFTER
        self.clean.masked_fill_(grows, 0)
        self.factors.mul_(torch.where(lost, 0.5, torch.where(grows, 2.0, 1.0))).clamp_(SMALLEST, self.first)

    def reset(self) -> None:
        """Back to the start."""
        self.factors.fill_(self.first)
        self.clean.zero_()

    def state(self) -> State:
        """What a training needs to go on."""
        return {"factors": self.factors, "clean": self.clean}

    def load(self, state: State) -> None:
        """Take up such a state."""
        self.factors.copy_(state["factors"])
        self.clean.copy_(state["clean"])
