"""How large what a figure shows was, in words: the scale, the sizes that all of its cells share, and the seeds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from rankscope.figures.figure import Figure
from rankscope.lab.scale import Scale

SCALES = {Scale.PAPER.value: "at the paper's sizes", Scale.QUICK.value: "at small sizes (scale quick)"}
COUNTED = {
    "input_dim": "input dimension",
    "tokens": "token",
    "patterns": "pattern",
    "layers": "layer",
    "heads": "head",
    "hidden": "neuron",
}
"""Fields of tasks and models that are sizes, and what they count."""


def scale_words(scale: str) -> str:
    """A scale in words."""
    return SCALES.get(scale, f"at scale {scale}")


def sized(figures: Sequence[Figure], scale: str, provenance: pd.DataFrame) -> list[Figure]:
    """Figures that say how large their cells were; one without an experiment, such as a survey, has no size."""
    return [
        replace(figure, sizes=sizes(scale, provenance[provenance["experiment"].isin(figure.experiments)]))
        if figure.experiments
        else figure
        for figure in figures
    ]


def sizes(scale: str, cells: pd.DataFrame) -> str:
    """The sizes of some cells, of which a table has settings and seeds; what differs between them is left out.

    >>> settings = ['{"task": {"dim": 8}, "model": {"dim": 8, "layers": 1}}', '{"task": {"dim": 8}, "model": {"layers": 2}}']
    >>> cells = pd.DataFrame({"experiment": "e", "settings": [*settings, settings[1]], "seed": [0, 0, 1]})
    >>> sizes("quick", cells)
    'at small sizes (scale quick): dim 8, 1 to 2 seeds'
    >>> computed = ['{"task": {"dim": 8}, "model": {}}', '{"task": {"dim": 16}, "model": {}}']
    >>> sizes("paper", pd.DataFrame({"experiment": "e", "settings": computed, "seed": 0}))
    "at the paper's sizes"
    """
    if cells.empty:
        return scale_words(scale)
    known = [json.loads(text) for text in cells["settings"].unique()]
    merged = [{**one.get("model", {}), **one.get("task", {})} for one in known]
    said = []
    for name in ("dim", *COUNTED):
        values = {json.dumps(one.get(name)) for one in merged}
        value = merged[0].get(name)
        if len(values) == 1 and isinstance(value, int):
            said.append(f"dim {value}" if name == "dim" else counted(value, COUNTED[name]))
    seeds = cells.groupby(["experiment", "settings"])["seed"].nunique()
    fewest, most = int(seeds.min()), int(seeds.max())
    if most > 1 or any(one.get("model") for one in known):  # what is computed once has no seeds to tell of
        said.append(counted(most, "seed") if fewest == most else f"{fewest} to {counted(most, 'seed')}")
    return ": ".join(filter(None, (scale_words(scale), ", ".join(said))))


def counted(number: Any, what: str) -> str:
    """So many of something.

    >>> counted(1, "layer"), counted(2048, "neuron")
    ('1 layer', '2,048 neurons')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
