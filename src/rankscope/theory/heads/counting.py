"""How many heads a budget has, how many harmonics there are, and how many a head of low rank can touch: exact integers."""

from collections.abc import Callable
from math import comb

from rankscope.core import InputError
from rankscope.theory.heads.inputs import Values


def heads_of_budget(dim: int, rank: int, budget: int) -> int:
    """Heads = budget·dim/rank: `budget` blocks of dim/rank heads, 4·budget·dim² parameters.

    >>> heads_of_budget(dim=64, rank=8, budget=64)  # dim³ parameters, up to the factor 4
    512
    """
    if rank < 1 or dim % rank:
        divisors = ", ".join(str(n) for n in range(1, dim + 1) if dim % n == 0)
        raise InputError(
            f"rank={rank} does not divide dim={dim}: a block has dim/rank heads. "
            f"Choose rank among {divisors}."
        )
    if budget < 1:
        raise InputError(f"budget={budget}: at least one block is needed.")
    return budget * dim // rank


def harmonic_dim(dim: int, degree: int) -> int:
    """N(d, l) = C(l+d−1, l) − C(l+d−3, l−2): dimension of the degree-l harmonics on S^{d−1}.

    >>> [harmonic_dim(3, degree) for degree in range(5)]
    [1, 3, 5, 7, 9]
    """
    if degree < 2:
        return 1 if degree == 0 else dim
    return comb(degree + dim - 1, degree) - comb(degree + dim - 3, degree - 2)


def touched_dim(dim: int, rank: int, degree: int) -> int:
    """M(d, r, l) = C(l+r−1, l): degree-l harmonics that are not orthogonal to all F(Kᵀx), rank K = r < d.

    Functions of Kᵀx are those invariant under the rotations fixing range(K), and the invariant
    harmonics of degree l are as many as the monomials of degree l in r variables. The talk's
    C(r+l, l) is the count at rank r + 1. Full rank touches all N(d, l).

    >>> touched_dim(64, 1, 7), touched_dim(64, 8, 3)
    (1, 120)
    """
    return harmonic_dim(dim, degree) if rank >= dim else comb(degree + rank - 1, degree)


def touched_dim_any_values(dim: int, rank: int, degree: int) -> int:
    """M_V(d, r, l) = min(N, 2 C(l+r−1, l) + C(l+r−3, l−2)): the same for (xᵀVx) F(Kᵀx), V arbitrary.

    >>> touched_dim_any_values(6, 3, 1)  # the talk's C(r+l, l) = 4 is too small here
    6
    """
    if rank >= dim:
        return harmonic_dim(dim, degree)
    return min(harmonic_dim(dim, degree), unclipped_touched_dim(rank, degree, "any"))


def unclipped_touched_dim(rank: int, degree: int, values: Values) -> int:
    """M or M_V for rank < dim, before the cap N(d, l): the count the tails of the bound are made of."""
    monomials = comb(degree + rank - 1, degree)
    if values == "identity":
        return monomials
    # C(l+r−3, l−2) at r = 1 is C(l−2, l−2) = 1, which comb gives for every l ≥ 2
    return 2 * monomials + (comb(degree + rank - 3, degree - 2) if degree >= 2 else 0)


def slide_touched_dim(rank: int, degree: int) -> int:
    """C(r+l, l): the talk's bound on M. Wasteful for V ∝ I, and too small for arbitrary V."""
    return comb(rank + degree, degree)


def least_odd(reached: Callable[[int], bool]) -> int:
    """The least odd number from which on `reached` is true, by doubling and bisection.

    >>> least_odd(lambda number: number**2 > 50)
    9
    """
    low, high = -1, 1
    while not reached(high):
        low, high = high, 2 * high + 1
    while high - low > 2:
        middle = (low + high) // 2
        middle += 1 - middle % 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
