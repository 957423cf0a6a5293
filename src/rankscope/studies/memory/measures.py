"""What a table of trained encoders says about memory: the gap, the bits, and the border that theory predicts."""

import math

import pandas as pd

from rankscope.papers.amsel2024.experiments import SIZES
from rankscope.papers.amsel2024.experiments import Sizes as FigureSizes
from rankscope.studies.memory.experiments import FRESH, MEMORY_SIZES
from rankscope.theory.memory import memory_border, remembered_bits

MOST = 16.0
"""Distinct batches over the border up to which bits are counted: there the shares' sampling error is
under 0.1 bits at the paper's sizes, and about 0.3 at `quick`, whose test is smaller."""


def with_memory(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns for what is remembered.

    batches          distinct batches; as many as steps where every batch is fresh
    gap              share of right answers on the batches that repeat beyond that on new points
    border           distinct batches that would fill two bits per parameter
    bits             remembered, per parameter, counted over all distinct batches
    content          bits of all their answers, per parameter: no model remembers more
    """
    sizes, steps = _sizes(table)
    answers, options = sizes.batch * sizes.tokens, sizes.tokens - 1
    fresh = table["distinct"] == FRESH
    batches = table["distinct"].where(~fresh, str(steps)).astype(int)
    recalled = table["recalled"].where(~fresh, table["answered"])
    bits = [
        remembered_bits(seen, new, options, count * answers) / parameters
        for seen, new, count, parameters in zip(
            recalled, table["answered"], batches, table["all_parameters"], strict=True
        )
    ]
    return table.assign(
        batches=batches,
        recalled=recalled,
        gap=recalled - table["answered"],
        border=[memory_border(int(count), answers, options) for count in table["all_parameters"]],
        bits=bits,
        content=batches * answers * math.log2(options) / table["all_parameters"],
    )


def countable(known: pd.DataFrame) -> pd.DataFrame:
    """Rows of low rank whose bits can be counted: with more batches a bit per parameter is too small a share of answers."""
    return known[(known["rank"] < known["dim"]) & (known["batches"] <= MOST * known["border"])]


def _sizes(table: pd.DataFrame) -> tuple[FigureSizes, int]:
    """The sizes of the scale that the table is of, and its steps: no two scales share a dim."""
    dim = int(table["dim"].iloc[0])
    scale = next(scale for scale, sizes in SIZES.items() if sizes.dim == dim)
    return SIZES[scale], MEMORY_SIZES[scale].steps
