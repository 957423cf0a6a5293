"""The questions people ask of the bounds, with their arguments checked."""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from rankscope.core import InputError
from rankscope.theory.heads import certified as balls
from rankscope.theory.heads import lower_bound, majority
from rankscope.theory.heads.certified import Enclosure, HeadRange, UndecidedError
from rankscope.theory.heads.inputs import (
    Share,
    Values,
    Whole,
    error_share,
    share,
    sphere_dim,
    values_kind,
    whole,
)
from rankscope.theory.heads.match3 import Communication
from rankscope.theory.heads.plan import Budget, plan_table

if TYPE_CHECKING:
    from rankscope.theory.heads.plan_frame import Plan


def error_floor(dim: Whole, rank: Whole, heads: Whole, values: str = "any") -> float:
    """The error that `heads` heads of rank `rank` cannot beat, whatever their weights and training.

    E‖f − Σ_h V_h X φ_h(K_hᵀX, y)‖² for the nearer of two points; the zero model has error 1, the
    average of the points 1/2.

    Args:
        dim: dimension of the points.
        rank: rank of a head.
        heads: number of heads.
        values: "any" for arbitrary V_h, "identity" for V_h ∝ I.

    Returns:
        The floor, between 0 and 1/2.

    Example:
        >>> round(error_floor(dim=64, rank=8, heads=8), 3)
        0.177
    """
    dim, rank, heads = _layer(dim, rank, heads)
    return lower_bound.error_floor(dim, rank, heads, values_kind(values))


def error_floor_enclosure(
    dim: Whole, rank: Whole, heads: Whole, values: str = "any", bits: int = 128
) -> Enclosure:
    """The same as an interval with exact ends that encloses the truth; needs python-flint."""
    dim, rank, heads = _layer(dim, rank, heads)
    return balls.error_floor(dim, rank, heads, values_kind(values), bits)


def min_heads(dim: Whole, rank: Whole, error: Share, values: str = "any", certified: bool = False) -> int:
    """The least number of heads not excluded at `error`; every smaller number is.

    An exact integer of any size. Uncertified, float64 may miss in the last digits beyond 10¹²;
    certified, it is proved, or `UndecidedError` gives the proved range.

    Args:
        dim: dimension of the points.
        rank: rank of a head.
        error: to be reached, between 0 and 1/2: a number, a fraction or text such as "1/10".
        values: "any" for arbitrary V_h, "identity" for V_h ∝ I.
        certified: prove it with ball arithmetic, which needs python-flint.

    Returns:
        The number of heads.

    Example:
        >>> min_heads(dim=64, rank=8, error=0.1)
        6016
    """
    dim, rank, exact, kind = sphere_dim(dim), whole("rank", rank, 1), error_share(error), values_kind(values)
    if not certified:
        return lower_bound.min_heads(dim, rank, exact, kind)
    proved = balls.min_heads(dim, rank, exact, kind)
    if not proved.decided:
        raise UndecidedError(
            f"The least number of heads lies between {proved.low} and {proved.high}; the balls could not "
            "separate them. Change error by a little, or take the range from head_range."
        )
    return proved.low


def head_range(dim: Whole, rank: Whole, error: Share, values: str = "any") -> HeadRange:
    """The least number of heads as a proved range, one number where it could be decided."""
    return balls.min_heads(sphere_dim(dim), whole("rank", rank, 1), error_share(error), values_kind(values))


def failure_rate(dim: Whole, heads: Whole) -> float:
    """P[the majority of `heads` random rank-1 heads picks the wrong one of two points]."""
    return majority.failure_rate(sphere_dim(dim), whole("heads", heads, 1))


def heads_for_failure(dim: Whole, failure: Share) -> int:
    """The least number of random rank-1 heads whose majority fails with probability ≤ `failure`."""
    exact = share("failure", failure, Fraction(1, 2), "a coin is wrong half of the time")
    return majority.heads_for_failure(sphere_dim(dim), exact)


def match3_communication(
    tokens: Whole, rank: Whole, heads: Whole, precision_bits: Whole, constant: float = 1.0
) -> Communication:
    """The related bound for Match3: rank·heads·precision_bits must exceed `constant`·tokens.

    The constant is not known; `assumptions` of the answer says what else is taken for granted.
    """
    if not 0 < constant < math.inf:
        raise InputError(f"constant={constant} must be a positive number. The talk gives none; 1 is a shape.")
    bits, needed = whole("precision_bits", precision_bits, 1), constant * whole("tokens", tokens, 1)
    rank = whole("rank", rank, 1)
    return Communication(
        carried_bits=rank * whole("heads", heads, 1) * bits,
        needed_bits=needed,
        least_heads=math.ceil(needed / (rank * bits)),
    )


def standard_heads(dim: Whole, rank: Whole) -> int:
    """Heads of the usual scaling, dim/rank rounded down, at least 1: 4·dim² parameters a layer."""
    return max(1, sphere_dim(dim) // whole("rank", rank, 1))


def plan(
    dim: Whole,
    *,
    params: int | None = None,
    kv_cache: int | None = None,
    flops: int | None = None,
    error: Share = 0.1,
    bytes_per_number: Whole = 2,
    context: Whole = 4_096,
) -> "Plan":
    """Layers (rank, heads, value_rank) within a budget, each with its floor and the nearest published model.

    With no limit given, the budget is 4·dim² parameters. `COVERS` says what the floors hold for.

    Args:
        dim: dimension of the layer.
        params: most parameters of the layer.
        kv_cache: most bytes per token in the KV cache.
        flops: most FLOPs per token at `context`.
        error: to be reached, between 0 and 1/2.
        bytes_per_number: of the KV cache.
        context: tokens that FLOPs are counted over.

    Returns:
        A table, a row per layer, the least floor first; `.plot()` draws the floor against the rank.

    Example:
        >>> plan(dim=64).query("rank == 64")[["rank", "heads", "floor"]].iloc[0].tolist()
        [64.0, 1.0, 0.0]
    """
    dim = sphere_dim(dim)
    limits = {"params": params, "kv_cache": kv_cache, "flops": flops}
    given = {name: whole(name, limit, 1) for name, limit in limits.items() if limit is not None}
    budget = Budget(
        params=given.get("params", None if given else 4 * dim**2),
        kv_bytes=given.get("kv_cache"),
        flops=given.get("flops"),
        bytes_per_number=whole("bytes_per_number", bytes_per_number, 1),
        context=whole("context", context, 1),
    )
    return plan_table(dim, budget, error_share(error))


def assumptions(values: str = "any") -> str:
    """What the bound assumes of the values, in one line."""
    kind: Values = values_kind(values)
    held = {
        "any": "any V_h and any attention function of (K_hᵀX, y), rank K_h ≤ rank",
        "identity": "V_h a multiple of the identity, any attention function of (K_hᵀX, y), rank K_h ≤ rank",
    }
    return f"One layer, two points, no residual or bias; {held[kind]}."


def _layer(dim: Whole, rank: Whole, heads: Whole) -> tuple[int, int, int]:
    return sphere_dim(dim), whole("rank", rank, 1), whole("heads", heads, 1)
