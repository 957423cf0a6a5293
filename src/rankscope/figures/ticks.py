"""Where an axis has ticks, and how they are labelled."""

import math
from collections.abc import Sequence

MOST_TICKS = 8
FEW_DECADES = 2.6
APART = 0.07
"""Of an axis, between two ticks whose labels do not touch."""


def tick_text(value: float, power: str) -> str:
    """A number as the label of a tick; very large and small ones as a power, which `power` writes as text.

    >>> [tick_text(value, "{}^{}") for value in (0.002, 32768, 2.0**20, 1e-7, 5e-7)]
    ['0.002', '32,768', '2^20', '10^-7', '5·10^-7']
    """
    exponent = math.floor(math.log10(value) + 1e-9)
    if -4 <= exponent <= 4:
        return f"{value:,g}"
    if value > 1 and math.log2(value).is_integer():
        return power.format(2, int(math.log2(value)))
    digits = f"{value / 10.0**exponent:.2g}"
    return power.format(10, exponent) if digits == "1" else f"{digits}·{power.format(10, exponent)}"


def bar_texts(values: Sequence[float]) -> list[str]:
    """What stands over bars, to three digits of the largest: a bar of almost no height would otherwise be taken for a gap.

    >>> bar_texts([0.157, 0.00012, 0.0]), bar_texts([1234.5, 20.0]), bar_texts([math.nan, 0.0])
    (['0.157', '0.000', '0.000'], ['1,234', '20'], ['', '0'])
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 0
    return [f"{value:,.{decimals}f}" if math.isfinite(value) else "" for value in values]


def is_short(value: float) -> bool:
    """Whether a number is a tick as it is: whole, or of at most three digits."""
    return value == int(value) or float(f"{value:.3g}") == value


def whole_ticks(low: float, high: float) -> list[float]:
    """Whole numbers from low to high at a round distance, at most nine of them.

    >>> whole_ticks(1, 20), whole_ticks(1, 200)[:3]
    ([5.0, 10.0, 15.0, 20.0], [50.0, 100.0, 150.0])
    """
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= MOST_TICKS)
    return [float(tick) for tick in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]


def apart(values: Sequence[float]) -> list[float]:
    """Of the ticks of a logarithmic axis those whose labels do not touch, the outermost among them.

    >>> apart([10, 14, 16, 20, 26, 28, 42])
    [10, 14, 16, 20, 26, 42]
    """
    if len(values) < 3:
        return list(values)
    least = APART * math.log(values[-1] / values[0])
    kept = [values[0]]
    for value in values[1:-1]:
        if min(math.log(value / kept[-1]), math.log(values[-1] / value)) >= least:
            kept.append(value)
    return [*kept, values[-1]]


def log_ticks(values: Sequence[float]) -> list[float]:
    """Ticks of a logarithmic axis: the denser, the fewer decades the values span; empty where there are none.

    >>> log_ticks([0.5, 0.7]), log_ticks([0.02, 0.9]), log_ticks([1e-9, 1.0])[:3]
    ([0.5, 0.6, 0.7, 0.8], [0.02, 0.05, 0.1, 0.2, 0.5, 1.0], [1e-09, 1e-07, 1e-05])
    """
    ends = [value for value in values if math.isfinite(value) and value > 0]
    if not ends:
        return []
    low, high = min(ends), max(ends)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    if decades > FEW_DECADES:
        return [float(f"1e{power}") for power in range(first, last + 1, max(1, round((last - first) / 5)))]
    digits = (1, 2, 5) if decades > 1 else (1, 2, 3, 5, 7) if decades > 0.5 else range(1, 10)
    ticks = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in digits]
    return [tick for tick in ticks if low / 1.2 <= tick <= high * 1.2]
