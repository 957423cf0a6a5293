"""Checks of what a caller passes in; every message names the remedy."""

import math
from fractions import Fraction
from operator import index
from typing import Literal, SupportsIndex, TypeAlias, get_args

from rankscope.core import InputError, suggest

# The functions a user calls take any number and refuse the wrong ones in words.
Whole: TypeAlias = SupportsIndex | float
Share: TypeAlias = float | int | str | Fraction

Values: TypeAlias = Literal["identity", "any"]


def whole(name: str, value: Whole, at_least: int) -> int:
    """`value` as an int, or an error that says what to pass.

    >>> whole("rank", 8, at_least=1)
    8
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name}={value!r} is not an integer. Pass a whole number ≥ {at_least}.") from None
    if number < at_least:
        raise InputError(f"{name}={number} is too small. Raise {name} to ≥ {at_least}.")
    return number


def sphere_dim(value: Whole) -> int:
    """A dimension in which the sphere is more than two points."""
    dim = whole("dim", value, at_least=1)
    if dim == 1:
        raise InputError("dim=1: the sphere is two points and there is no rank to trade. Raise dim to ≥ 2.")
    return dim


def share(name: str, value: Share, below: Fraction, why: str) -> Fraction:
    """`value` as an exact fraction in (0, below).

    A float is read as the decimal it prints as, so 0.1 means 1/10.

    >>> share("error", 0.1, Fraction(1, 2), "the average of both points already reaches it")
    Fraction(1, 10)
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name}={value} is not a number in (0, {below}).")
    try:
        exact = Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise InputError(f"{name}={value!r} is not a number. Pass one in (0, {below}).") from None
    if exact <= 0:
        raise InputError(f"{name}={value} must be positive. Pass a number in (0, {below}).")
    if exact >= below:
        raise InputError(f"{name}={value} is no demand: {why}. Lower {name} below {below}.")
    return exact


def error_share(value: Share) -> Fraction:
    """An error that is worth a bound: in (0, 1/2)."""
    return share(
        "error", value, Fraction(1, 2), "the average of the two points has error 1/2 with no attention"
    )


def values_kind(value: str) -> Values:
    """One of the two assumptions on V_h."""
    kinds: tuple[Values, ...] = get_args(Values)
    for kind in kinds:
        if value == kind:
            return kind
    raise InputError(f"values={value!r} is not an assumption we know. {suggest(str(value), kinds)}")
