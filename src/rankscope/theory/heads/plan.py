"""Which (rank, heads, value_rank) fit a budget, and what the theory says of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from rankscope.core import InputError
from rankscope.theory.heads import lower_bound
from rankscope.theory.heads.published_models import nearest_model

if TYPE_CHECKING:
    from rankscope.theory.heads.plan_frame import Plan

COVERS = (
    "The floor holds for one attention layer on nearest-neighbour search between two points, whatever the "
    "weights, the attention function, positions or training. It says nothing about a residual connection, "
    "biases, more layers or MLPs, more than two points, or other tasks."
)


@dataclass(frozen=True)
class PlannedLayer:
    """A multi-head attention layer, and what it costs per token."""

    dim: int
    rank: int
    heads: int
    value_rank: int

    @property
    def params(self) -> int:
        """W_Q, W_K of rank·heads rows and W_V, W_O of value_rank·heads rows; 4 r H d when equal."""
        return 2 * self.dim * self.heads * (self.rank + self.value_rank)

    def kv_bytes(self, bytes_per_number: int) -> int:
        """Bytes the KV cache keeps per token."""
        return self.heads * (self.rank + self.value_rank) * bytes_per_number

    def flops(self, context: int) -> int:
        """Multiply-adds counted as two, per token: the projections, then scores and mixing over `context`."""
        return 2 * self.params + 2 * context * self.heads * (self.rank + self.value_rank)

    @property
    def value_floor(self) -> float:
        """1 − heads·value_rank/dim: outputs in a smaller subspace miss this share of an isotropic target."""
        return max(0.0, 1 - self.heads * self.value_rank / self.dim)

    @property
    def floor(self) -> float:
        """The larger of the two floors: rank of the scores (V_h arbitrary), and rank of the values."""
        return max(self.value_floor, lower_bound.error_floor(self.dim, self.rank, self.heads, "any"))


@dataclass(frozen=True)
class Budget:
    """Upper limits per layer; what is None is not limited."""

    params: int | None = None
    kv_bytes: int | None = None
    flops: int | None = None
    bytes_per_number: int = 2
    context: int = 4_096

    def most_heads(self, dim: int, rank: int, value_rank: int) -> int:
        """The most heads of this shape within every limit; each cost is proportional to heads."""
        one = PlannedLayer(dim, rank, 1, value_rank)
        costs = (
            (self.params, one.params),
            (self.kv_bytes, one.kv_bytes(self.bytes_per_number)),
            (self.flops, one.flops(self.context)),
        )
        limits = [limit // cost for limit, cost in costs if limit is not None]
        if not limits:
            raise InputError("No budget given. Set params, kv_bytes or flops.")
        return min(limits)


def rank_choices(dim: int) -> Iterator[int]:
    """1, 2, 4, … below dim, then dim itself.

    >>> list(rank_choices(12))
    [1, 2, 4, 8, 12]
    """
    rank = 1
    while rank < dim:
        yield rank
        rank *= 2
    yield dim


def plan_table(dim: int, budget: Budget, error: Fraction) -> "Plan":
    """Every (rank, value_rank) with the most heads the budget allows, best floor first.

    `min_heads` is the least number of heads not excluded at `error`; `excluded` whether the row falls
    short of it, by either floor.
    """
    from rankscope.theory.heads.plan_frame import Plan

    rows = []
    for rank in rank_choices(dim):
        needed = lower_bound.min_heads(dim, rank, error, "any")
        for value_rank in rank_choices(dim):
            heads = budget.most_heads(dim, rank, value_rank)
            if heads == 0:
                continue
            layer = PlannedLayer(dim, rank, heads, value_rank)
            floor = layer.floor
            rows.append(
                {
                    "rank": rank,
                    "heads": heads,
                    "value_rank": value_rank,
                    "params": layer.params,
                    "kv_bytes": layer.kv_bytes(budget.bytes_per_number),
                    "flops": layer.flops(budget.context),
                    "floor": floor,
                    "min_heads": needed,
                    "excluded": floor > error,
                    "nearest_model": nearest_model(dim, rank, heads, value_rank).name,
                }
            )
    if not rows:
        smallest = PlannedLayer(dim, 1, 1, 1)
        raise InputError(
            f"No layer fits: one head of rank 1 already takes {smallest.params} parameters, "
            f"{smallest.kv_bytes(budget.bytes_per_number)} KV-cache bytes and "
            f"{smallest.flops(budget.context)} FLOPs per token. Raise the budget."
        )
    table = Plan(rows).astype({"min_heads": object})
    return Plan(table.sort_values(["floor", "params", "rank"], kind="stable").reset_index(drop=True))
