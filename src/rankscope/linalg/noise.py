"""What rounding alone leaves in the difference of two checkpoints, and how many directions are above it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.core import InputError
from rankscope.linalg.decompose import unresolved

_MANTISSA_BITS = {
    torch.float8_e5m2: 2,
    torch.float8_e4m3fn: 3,
    torch.bfloat16: 7,
    torch.float16: 10,
    torch.float32: 23,
    torch.float64: 52,
}
_LEAST_EXPONENT = {
    torch.float8_e5m2: -14,
    torch.float8_e4m3fn: -6,
    torch.bfloat16: -126,
    torch.float16: -14,
    torch.float32: -126,
    torch.float64: -1022,
}
ROWS_AT_ONCE = 1024
SHARE_STEPS = 4
TRACY_WIDOM_QUANTILE = 3.27
"""99.9 % of the largest singular values of pure noise lie below this many Tracy–Widom units over the edge"""


@dataclass(frozen=True)
class RoundingNoise:
    """The variances of independent errors, as their sums along rows and columns."""

    row_energy: Float[Tensor, " row"]
    column_energy: Float[Tensor, " column"]

    def __add__(self, other: RoundingNoise) -> RoundingNoise:
        return RoundingNoise(self.row_energy + other.row_energy, self.column_energy + other.column_energy)

    def __mul__(self, share: float) -> RoundingNoise:
        return RoundingNoise(self.row_energy * share, self.column_energy * share)

    @property
    def energy(self) -> float:
        """The sum of all variances."""
        return float(self.row_energy.sum())

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix of errors."""
        return len(self.row_energy), len(self.column_energy)

    def edge(self) -> float:
        """The largest singular value that noise alone shows, but once in a thousand times.

        √(max row energy) + √(max column energy): σ(√rows + √columns), the Marchenko–Pastur edge, where all
        errors are alike, and above it where some rows or columns are louder [Bandeira and van Handel 2016].
        The Tracy–Widom spread of the largest value is added [Johnstone 2001].
        """
        rows, columns = self.shape
        bulk = math.sqrt(float(self.row_energy.max())) + math.sqrt(float(self.column_energy.max()))
        plain = math.sqrt(rows) + math.sqrt(columns)
        spread = plain * (1 / math.sqrt(rows) + 1 / math.sqrt(columns)) ** (1 / 3)
        return bulk * math.sqrt(1 + TRACY_WIDOM_QUANTILE * spread / plain**2)


def rounding_noise(
    values: Float[Tensor, "row column"],
    dtype: torch.dtype,
    scale: Float[Tensor, "row column"] | None = None,
) -> RoundingNoise:
    """The noise of having rounded to `values` in `dtype`: uniform within half a unit in the last place.

    With a scale, values / scale is what was rounded.
    """
    rows, columns = values.shape
    row_energy = values.new_zeros(rows, dtype=torch.float64)
    column_energy = values.new_zeros(columns, dtype=torch.float64)
    for start in range(0, rows, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        unit = (
            unit_in_last_place(values[part], dtype)
            if scale is None
            else unit_in_last_place(values[part] / scale[part], dtype) * scale[part]
        )
        variance = unit.double().square() / 12
        row_energy[part] = variance.sum(1)
        column_energy += variance.sum(0)
    return RoundingNoise(row_energy, column_energy)


def observed_noise(
    noise: RoundingNoise, base: Float[Tensor, "row column"], tuned: Float[Tensor, "row column"]
) -> RoundingNoise:
    """Noise that is never more than the difference itself holds, along each row and column.

    A weight that did not leave its rounding cell has difference 0 and no noise. A base that training started from exactly has
    no noise of its own; with the noise of both the count errs on the side of too few, and what is smaller than a cell was lost
    when it was saved (`seen_share` says how much of it is seen).
    """
    rows = torch.zeros_like(noise.row_energy)
    columns = torch.zeros_like(noise.column_energy)
    for start in range(0, len(base), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        moved = (tuned[part].double() - base[part].double()).square()
        rows[part] = moved.sum(1)
        columns += moved.sum(0)
    return RoundingNoise(torch.minimum(noise.row_energy, rows), torch.minimum(noise.column_energy, columns))


def unit_in_last_place(values: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """The distance between neighbouring numbers of `dtype` at each value.

    >>> unit_in_last_place(torch.tensor([1.0, 1.5, 4.0]), torch.bfloat16).tolist()
    [0.0078125, 0.0078125, 0.03125]
    """
    if dtype not in _MANTISSA_BITS:
        raise InputError(f"No rounding model for {dtype}: known are the floats of 8 to 64 bits.")
    exponent = torch.frexp(values).exponent - 1
    exponent = torch.where(values == 0, _LEAST_EXPONENT[dtype], exponent.clamp_min(_LEAST_EXPONENT[dtype]))
    return torch.ldexp(torch.ones_like(values), exponent - _MANTISSA_BITS[dtype])


def stored_precision(values: Float[Tensor, "*shape"], dtype: torch.dtype) -> torch.dtype:
    """The coarsest type that holds `values` exactly: a bfloat16 model saved as float32 keeps its rounding."""
    for coarser in (torch.bfloat16, torch.float16):
        if dtype in (torch.float32, torch.float64) and torch.equal(values.to(coarser).to(values), values):
            return coarser
    return dtype


def signal_rank(singular_values: Float[Tensor, " value"], noise: RoundingNoise) -> int:
    """How many singular values are above what rounding noise alone would give, as far as they are resolved."""
    return int((singular_values > math.hypot(noise.edge(), unresolved(singular_values, *noise.shape))).sum())


def seen_share(singular_values: Float[Tensor, " value"], base: RoundingNoise, tuned: RoundingNoise) -> float:
    """Which share of the base's rounding noise an update shows: 0 where training started from the stored base itself.

    What is left of the energy without the directions of the signal is the rounding of the tuned model and this share of
    the base's; a signal of `rank` directions takes rank/rows and rank/columns of the noise with it. The share
    starts at 1 and never rises, so that what is not understood counts as noise.
    """
    rows, columns = base.shape
    squares = singular_values.double().square()
    share = 1.0
    for _ in range(SHARE_STEPS):
        rank = signal_rank(singular_values, tuned + base * share)
        if rank >= min(rows, columns) or base.energy == 0:
            return share
        left = float(squares[rank:].sum()) / ((1 - rank / rows) * (1 - rank / columns))
        share = min(share, max(0.0, (left - tuned.energy) / base.energy))
    return share


def gavish_donoho_coefficient(rows: int, columns: int) -> float:
    """The best hard threshold for singular values, in units of σ√(longer side), for known noise σ.

    √(2(β + 1) + 8β / ((β + 1) + √(β² + 14β + 1))), β = shorter / longer   [Gavish and Donoho 2014]

    >>> round(gavish_donoho_coefficient(100, 100), 4)  # 4/√3
    2.3094
    """
    beta = min(rows, columns) / max(rows, columns)
    return math.sqrt(2 * (beta + 1) + 8 * beta / ((beta + 1) + math.sqrt(beta**2 + 14 * beta + 1)))


def gavish_donoho_rank(singular_values: Float[Tensor, " value"], rows: int, columns: int) -> int:
    """How many values pass the best hard threshold where the noise is unknown and read off the median.

    The median of the Marchenko–Pastur law links the median singular value to σ. A matrix with more than half
    of its values zero has no noise to read: its non-zero values are all counted.
    """
    beta = min(rows, columns) / max(rows, columns)
    unit = float(singular_values.quantile(0.5)) / math.sqrt(marchenko_pastur_median(beta))
    threshold = gavish_donoho_coefficient(rows, columns) * unit
    return int((singular_values > math.hypot(threshold, unresolved(singular_values, rows, columns))).sum())


def marchenko_pastur_median(beta: float) -> float:
    """The median of the Marchenko–Pastur law of ratio `beta` and unit variance.

    >>> round(marchenko_pastur_median(1.0), 3)
    0.653
    """
    low, high = (1 - math.sqrt(beta)) ** 2, (1 + math.sqrt(beta)) ** 2
    angle = (torch.arange(20_000, dtype=torch.float64) + 0.5) * (math.pi / 20_000)
    place = (low + high) / 2 - (high - low) / 2 * angle.cos()
    mass = angle.sin().square() / place
    below = mass.cumsum(0) / mass.sum()
    return float(place[torch.searchsorted(below, 0.5)])
