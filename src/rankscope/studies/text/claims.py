"""How much rank do points that look like text need? Every threshold was fixed before the experiments were run as they are.

The first-look table of word vectors was known: words are easier than the sphere, and rank 64 keeps about half.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from rankscope.lab import AtLeast, AtMost, Check, Claims, Origin, Threshold
from rankscope.lab.seeds import by_seed
from rankscope.studies.text.experiments import LIKE_WORDS
from rankscope.studies.text.sources import WORDS

CLAIMS = Claims("amsel2024", Origin.BEYOND)
SOURCE = "Beyond the talk: its last question"
_projected = partial(CLAIMS, source=SOURCE, experiment="text-projections")
_trained = partial(CLAIMS, source=SOURCE, experiment="text", figure="text-trained")

NEAR = 0.05
"""Largest mean difference between a share that is predicted and one that is measured."""

MAKES_UP = 0.5
"""Share of what low rank loses that more heads, or more layers, would have to win back."""

CANDIDATES = ("participation", "entropy", "energy", "score", "score_energy")


@_projected("text-easier", says="Words are easier than the sphere: at every rank below full more answers are kept.",
            figure="text-projections")  # fmt: skip
def _words_are_easier(table: pd.DataFrame) -> list[Check]:
    words, flat = (
        table[table["law"] == law].pivot(index="seed", columns="rank", values="agreement")
        for law in (WORDS, "power 0")
    )
    return [
        Check(f"answers kept at rank {rank}, words beyond isotropic points", tuple((words - flat)[rank].astype(float)),
              AtLeast(0.0), Threshold.NULL)
        for rank in words.columns
    ]  # fmt: skip


@_projected("text-half", says="On words a head of rank 64 or less still misses more than a third of the answers.",
            figure="text-projections")  # fmt: skip
def _usual_heads_miss(table: pd.DataFrame) -> list[Check]:
    words = table[table["law"] == WORDS]
    kept = {rank: words[words["rank"] == rank] for rank in (32, 64)}
    return [
        Check(f"answers kept at rank {rank}, words", by_seed(rows, rows["agreement"]), AtMost(2 / 3))
        for rank, rows in kept.items()
    ]


@_projected("text-predicted", figure="text-projections", says="Joint normality of the two scores predicts what a projected "
            "score keeps, on ellipsoids and on real rows.")  # fmt: skip
def _normal_scores_predict(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"mean difference between shares measured and predicted, {law}",
              by_seed(rows, (rows["agreement"] - rows["predicted"]).abs()), AtMost(NEAR))
        for law, rows in table.groupby("law", sort=False)
    ]  # fmt: skip


def _closest(best: str, words: str, others: Sequence[str], table: pd.DataFrame) -> list[Check]:
    """Whether the rank that is needed follows one column more closely than it does others."""
    least = spread(table, best)
    return [
        Check(
            f"spread of log(rank/dimension) over laws: {name} minus {words}",
            tuple((spread(table, name) - least).astype(float)),
            AtLeast(0.0),
            Threshold.NULL,
        )
        for name in others
    ]


_projected("text-dimension", figure="text-dimension", says="The rank that keeps 0.9 of the answers follows the participation "
           "ratio of the points more closely than other dimensions.")(
    partial(_closest, "participation", "participation", CANDIDATES[1:]))  # fmt: skip
_projected("text-needed-predicted", figure="text-dimension", says="The whole spectrum, by joint normality, predicts the rank "
           "that keeps 0.9 of the answers more closely than any effective dimension.")(
    partial(_closest, "predicted_needed", "the rank predicted", CANDIDATES))  # fmt: skip


def _made_up(what: str, table: pd.DataFrame) -> list[Check]:
    more = "more heads win" if what == "budget" else "more layers win"
    return [
        Check(
            f"share of the loss at rank {rank} that {more} back, words",
            tuple(won.astype(float)),
            AtMost(MAKES_UP),
        )
        for rank, won in made_up(table, what).items()
    ]


_trained("text-heads-make-up", says="More heads make up for less than half of what low rank loses on words.")(
    partial(_made_up, "budget")
)
_trained(
    "text-depth-makes-up", says="Three layers make up for less than half of what low rank loses on words."
)(partial(_made_up, "layers"))


@_trained(
    "text-law",
    says="Trained encoders do as well on words as on an ellipsoid of their spectrum: only the spectrum matters.",
)
def _the_spectrum_is_enough(table: pd.DataFrame) -> list[Check]:
    checks = []
    for shape, rows in table.groupby("shape", sort=False):
        answered = rows.pivot(index=["seed", "rank"], columns="law", values="answered")
        away = (answered[WORDS] - answered[LIKE_WORDS]).abs().groupby("seed", sort=True).mean()
        what = f"mean difference in the share answered, words against their ellipsoid, {shape}"
        checks.append(Check(what, tuple(away.astype(float)), AtMost(NEAR)))
    return checks


@CLAIMS("text-used-rank", source=SOURCE, says="A head of MiniLM uses more rank where its layer reads more dimensions.",
        experiment="text-heads", figure="text-heads")  # fmt: skip
def _used_rank_follows_inputs(table: pd.DataFrame) -> list[Check]:
    return [
        Check(f"rank correlation over layers of QK's mean {column.replace('_', ' ')} with the inputs' participation ratio",
              correlation(table, column), AtLeast(0.0), Threshold.NULL)
        for column in ("effective_rank", "used_rank")
    ]  # fmt: skip


def spread(table: pd.DataFrame, dimension: str) -> "pd.Series[float]":
    """Standard deviation over laws of log(needed rank / dimension), one value per seed."""
    once = table.drop_duplicates(["law", "seed"])
    logs = (once["needed"] / once[dimension]).map(math.log)
    return logs.groupby(once["seed"]).std()


def correlation(table: pd.DataFrame, column: str) -> tuple[float, ...]:
    """Spearman's correlation over layers between the heads' mean and the inputs' participation ratio, one value per seed."""
    found = []
    for _, rows in table.groupby("seed", sort=True):
        means = rows.groupby("layer")[[column, "participation"]].mean().rank()
        found.append(float(np.corrcoef(means[column], means["participation"])[0, 1]))
    return tuple(found)


def made_up(table: pd.DataFrame, what: str) -> "dict[int, pd.Series[float]]":
    """(error of low rank − error with more of it) / (error of low rank − error of full rank), on words: per rank and seed.

    Nothing where encoders with more of it were not trained.
    """
    words = table[table["law"] == WORDS].assign(
        layers=table["shape"].str.extract(r"^(\d+)", expand=False).astype(int),
        budget=table["shape"].str.extract(r"(\d+)$", expand=False).astype(int),
    )
    other = "layers" if what == "budget" else "budget"
    words = words[words[other] == 1]
    errors = words.pivot(index="seed", columns=[what, "rank"], values="error")
    most, full = words[what].max(), words["rank"].max()
    if most == 1:
        return {}
    return {
        int(rank): (errors[1, rank] - errors[most, rank]) / (errors[1, rank] - errors[1, full])
        for rank in sorted(words["rank"].unique())
        if rank < full
    }
