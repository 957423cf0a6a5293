"""What known algorithms predict for y_i from the i − 1 examples before it, prefix by prefix   [garg2022].

`ridge` is Bayes-optimal for linear functions: the posterior mean of w ~ N(0, I) under noise; without noise it is the
least-squares answer of smallest norm.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Predictions = Float[Tensor, "*batch point"]

NEIGHBOURS = 3
ITERATIONS, STILL = 3000, 1e-7
"""Of the lasso: few examples of many coordinates take thousands, others end once no weight moves by more than this."""


def least_squares(xs: Tensor, ys: Tensor) -> Predictions:
    """x_iᵀ X⁺ y, the solution of smallest norm while there are fewer examples than dimensions."""
    return _by_prefix(xs, ys, lambda before, outputs: torch.linalg.pinv(before) @ outputs.unsqueeze(-1))


def ridge(xs: Tensor, ys: Tensor, noise: float) -> Predictions:
    """x_iᵀ (XᵀX + noise² I)⁻¹ Xᵀy: the posterior mean; its limit, least squares, where there is no noise."""
    if noise == 0:
        return least_squares(xs, ys)
    eye = torch.eye(xs.shape[-1], dtype=xs.dtype, device=xs.device)
    return _by_prefix(
        xs,
        ys,
        lambda before, outputs: torch.linalg.solve(
            before.mT @ before + noise**2 * eye, before.mT @ outputs.unsqueeze(-1)
        ),
    )


def averaging(xs: Tensor, ys: Tensor) -> Predictions:
    """x_iᵀ w with w the mean of y_j x_j."""
    return _by_prefix(xs, ys, lambda before, outputs: before.mT @ outputs.unsqueeze(-1) / before.shape[-2])


def lasso(xs: Tensor, ys: Tensor, penalty: float) -> Predictions:
    """x_iᵀ w with w the least of ‖y − Xw‖²/(2·examples) + penalty·‖w‖₁."""
    return _by_prefix(xs, ys, lambda before, outputs: _lasso(before, outputs, penalty).unsqueeze(-1))


def nearest_neighbours(xs: Tensor, ys: Tensor) -> Predictions:
    """The mean output of the three nearest examples; of all, while there are fewer."""
    found = [torch.zeros_like(ys[..., 0])]
    for i in range(1, xs.shape[-2]):
        apart = (xs[..., :i, :] - xs[..., i : i + 1, :]).square().sum(-1)
        nearest = apart.topk(min(NEIGHBOURS, i), largest=False).indices
        found.append(ys[..., :i].gather(-1, nearest).mean(-1))
    return torch.stack(found, -1)


def least_squares_error(examples: int, input_dim: int) -> float:
    """1 − examples/input_dim, and 0 from input_dim on: E of the squared error over E y², without noise.

    The examples span a random subspace; the part of w that is orthogonal to it is unknown.

    >>> [least_squares_error(examples, 20) for examples in (0, 5, 20, 40)]
    [1.0, 0.75, 0.0, 0.0]
    """
    return max(0.0, 1 - examples / input_dim)


def _by_prefix(xs: Tensor, ys: Tensor, solve: Callable[[Tensor, Tensor], Tensor]) -> Predictions:
    """x_iᵀ w_i with w_i a column solved for from the examples before i; 0 for the first."""
    found = [torch.zeros_like(ys[..., 0])]
    for i in range(1, xs.shape[-2]):
        column = solve(xs[..., :i, :], ys[..., :i])
        found.append((xs[..., i : i + 1, :] @ column).squeeze(-1).squeeze(-1))
    return torch.stack(found, -1)


def _lasso(xs: Tensor, ys: Tensor, penalty: float) -> Float[Tensor, "batch dim"]:
    """Proximal gradient steps with momentum, which begins anew where it points uphill (FISTA)."""
    examples = xs.shape[-2]
    products, pulls = xs.mT @ xs / examples, xs.mT @ ys.unsqueeze(-1) / examples
    rate = 1 / torch.linalg.eigvalsh(products)[:, -1:, None].clamp_min(torch.finfo(xs.dtype).tiny)
    w = ahead = torch.zeros_like(pulls)
    pace = torch.ones_like(rate)
    for _ in range(ITERATIONS):
        stepped = ahead - rate * (products @ ahead - pulls)
        now = stepped.sign() * (stepped.abs() - rate * penalty).clamp_min(0)
        uphill = ((ahead - now) * (now - w)).sum(1, keepdim=True) > 0
        pace = pace.masked_fill(uphill, 1.0)
        faster = (1 + (1 + 4 * pace.square()).sqrt()) / 2
        moved = (now - w).abs().max()
        ahead, w, pace = now + ((pace - 1) / faster) * (now - w), now, faster
        if moved <= STILL:
            break
    return w.squeeze(-1)
