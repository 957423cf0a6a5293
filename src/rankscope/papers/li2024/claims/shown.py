"""What li2024 shows in figures 1A to 3B, in the setting of its section IV."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Between, Check, Claims, Origin
from rankscope.lab.tidy import per_seed, rows_of
from rankscope.papers.li2024.measurement import LETTERS, LIKE_FULL

CLEARLY_WORSE = 0.05
"""Loss that must be added to count as clear harm."""

TWO_GROUPS = 0.8
"""Share of variance between two groups of neurons from which they count as apart (one normal group has 0.64)."""

BY_LOSS = "a convention, beside a hinge loss of 1 before training"
TEN_TIMES = "the paper's: at least 10 times smaller"
FOUR_TENTHS = "the paper's 0.4, within 0.1 by convention"
ONE_GROUP = "a convention above the 0.64 of a single normal group"
GAIN = "a convention on the share of what training gained"

claims = CLAIMS = Claims("li2024")


def at_end(table: pd.DataFrame, measurement: str, **at: str) -> pd.DataFrame:
    """The rows of a measurement at the last step of every training."""
    rows = rows_of(table, measurement, **at)
    steps, (cells, names) = rows["step"].to_numpy(), pd.factorize(rows["cell"])
    last = np.full(len(names), -np.inf)
    np.maximum.at(last, cells, steps)
    at_last: pd.DataFrame = rows[steps == last[cells]]
    return at_last


def _over(coordinate: str, rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The column's values with a row per seed, in the order of the seeds, and a column per place of the coordinate."""
    return rows.pivot(index="seed", columns=coordinate, values=column)


@claims("fig1a", source="Figure 1A", value="rank ≥ 2 like full rank", experiment="regime", figure="1",
        says="Updates truncated to rank ≥ 2 test like full rank; rank 1 is clearly worse.")  # fmt: skip
def _figure_1a(table: pd.DataFrame) -> list[Check]:
    loss = _over("rank", at_end(table, "truncation"), "loss")
    return [
        Check("loss at full rank", per_seed(at_end(table, "whole"), "loss"), AtMost(CLEARLY_WORSE), BY_LOSS),
        Check("loss added at rank 2", tuple(loss[2] - loss[20]), AtMost(LIKE_FULL), BY_LOSS),
        Check("loss added at rank 1", tuple(loss[1] - loss[20]), AtLeast(CLEARLY_WORSE), BY_LOSS),
    ]


@claims("fig1b", source="Figure 1B", value="rank ≥ 2 like full rank", experiment="regime", figure="1",
        says="Attention on label-relevant tokens: rank ≥ 2 is like full rank, rank 1 gets evidently less.")  # fmt: skip
def _figure_1b(table: pd.DataFrame) -> list[Check]:
    start = at_end(table, "whole").set_index("seed")["mass_start"]
    gained = _over("rank", at_end(table, "truncation"), "mass").sub(start, axis="index")
    kept = gained.div(gained[20].clip(lower=1e-6), axis="index")  # what lost attention kept none of a gain
    return [
        Check("share of the attention gain kept at rank 1", tuple(kept[1]), AtMost(0.75), GAIN),
        Check("share of the attention gain kept at rank 2", tuple(kept[2]), Between(0.95, 1.05), GAIN),
        Check(
            "attention gained on relevant tokens",
            tuple(gained[20]),
            AtLeast(0.01),
            "a convention: less is no gain to keep a share of",
        ),
    ]


def _second_over_third(table: pd.DataFrame, letters: Iterable[str]) -> list[Check]:
    spectra = at_end(table, "spectrum")
    sigmas = {letter: _over("place", spectra[spectra["matrix"] == letter], "sigma") for letter in letters}
    return [
        Check(f"σ₂/σ₃ of ΔW_{letter.upper()}", tuple(sigma[2] / sigma[3]), AtLeast(10.0), TEN_TIMES)
        for letter, sigma in sigmas.items()
    ]


@claims("fig2", source="Figure 2", value="σ₂/σ₃ ≥ 10", experiment="regime", figure="2",
        says="The first two singular values of ΔW_K become the largest, the others ≥ 10 times smaller.")  # fmt: skip
def _figure_2(table: pd.DataFrame) -> list[Check]:
    (ratio,) = _second_over_third(table, "k")
    return [
        replace(ratio, what="σ₂/σ₃ of ΔW_K at the end"),
        Check(
            "least growth of σ₁ and σ₂ from one step shown to the next",
            per_seed(rows_of(table, "growth", matrix="k"), "least_growth"),
            AtLeast(1.0),
            "the paper's: they grow",
        ),
    ]


def _two_groups(of: str, table: pd.DataFrame) -> list[Check]:
    rows = at_end(table, "neurons", of=of)
    return [
        Check("share of the variance between two groups", per_seed(rows, "separation"), AtLeast(TWO_GROUPS), ONE_GROUP),
        Check("fraction of neurons in the lower", per_seed(rows, "small_fraction"), Between(0.3, 0.5), FOUR_TENTHS),
    ]  # fmt: skip


claims("fig3a", source="Figure 3A", value="80/200 = 0.4", experiment="regime", figure="3",
       says="About 0.4 of the neurons of W_O end with a clearly smaller magnitude ‖o_i‖.")(
    partial(_two_groups, "o"))  # fmt: skip
claims("fig3a-update", source="Figure 3A, update", value="80/200 = 0.4", experiment="regime", figure="3",
       says="About 0.4 of the neurons change clearly less, measured by ‖Δo_i‖.",
       origin=Origin.READING)(partial(_two_groups, "update"))  # fmt: skip


@claims("fig3b", source="Figure 3B", value="flat up to 0.4", experiment="regime", figure="3",
        says="Pruning the smallest neurons is harmless up to 0.4 and hurts more and more beyond.")  # fmt: skip
def _figure_3b(table: pd.DataFrame) -> list[Check]:
    loss = _over("fraction", at_end(table, "pruning", order="smallest"), "loss")
    rises = loss.loc[:, 0.4:].diff(axis="columns").iloc[:, 1:]
    return [
        Check("loss added by pruning 0.4", tuple(loss[0.4] - loss[0.0]), AtMost(LIKE_FULL), BY_LOSS),
        Check("loss added by pruning 0.6", tuple(loss[0.6] - loss[0.0]), AtLeast(LIKE_FULL), BY_LOSS),
        Check(
            "least rise from one pruning rate to the next beyond 0.4",
            tuple(rises.min(axis="columns")),
            AtLeast(0.0),
            "the paper's: more and more",
        ),
    ]


claims("remark1", source="Remark 1, section IV", value="rank 2", experiment="regime", figure="2",
       says="ΔW_Q, ΔW_K, ΔW_V and ΔW_O are approximately of rank 2.")(
    lambda table: _second_over_third(table, LETTERS.values()))  # fmt: skip
