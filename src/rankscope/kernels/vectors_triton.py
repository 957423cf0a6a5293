"""Sums over the parts that the programs of another kernel have written. Arrays are (member, part, column), contiguous."""

import triton
import triton.language as tl


@triton.jit
def column_sums(parts, sums, count, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """COLUMNS columns of a member, always in the same order."""
    member, row = tl.program_id(1).to(tl.int64), tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = 0
    while first < count:
        there = (first + row < count)[:, None] & (column < width)[None, :]
        at = parts + (member * count + first + row[:, None]) * width + column[None, :]
        total += tl.load(at, mask=there, other=0.0)
        first += ROWS
    tl.store(sums + member * width + column, tl.sum(total, 0), mask=column < width)
