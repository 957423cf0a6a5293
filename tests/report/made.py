"""Sections with everything a page can show: three origins, three verdicts, findings, several figures."""

from dataclasses import replace

import pandas as pd

from rankscope.figures.figure import Colours, Figure, HeatMap, Panel, Series, band
from rankscope.lab import AtLeast, Check, Claim, Origin, Paper, judge
from rankscope.lab.finding import Finding, Question
from rankscope.lab.section import Section, Unfinished

CLEAR, LOW, MIXED = (1.0, 1.1, 0.9), (0.0, 0.1, -0.1), (0.4, 0.9, 0.8)
PROVENANCE = pd.DataFrame(
    [("toy2024/one", '{"task": {"dim": 4}}', 0, 1.0, 1, "1", "abc", "2", "cpu", "float32")],
    columns=["experiment", "settings", "seed", "seconds", "peak_bytes", "version", "commit_id", "torch", "device", "dtype"],
)  # fmt: skip


def claim(name, source, origin, *values, figure="toy2024-1", paper_value="0.4"):
    checks = [Check(f"share {place}", one, AtLeast(0.5)) for place, one in enumerate(values)]
    return Claim(
        f"toy2024.{name}", source, f"Statement of {name}.", paper_value, "toy2024/one", figure, lambda _: checks, origin
    )  # fmt: skip


CLAIMS = [
    claim("clear", "Figure 1", Origin.PAPER, (9.0, 9.1, 9.2), CLEAR),
    claim("against", "Figure 2", Origin.PAPER, CLEAR, LOW, figure="toy2024-2"),
    claim("vague", "Remark 3", Origin.READING, MIXED),
    claim("more", "our question", Origin.BEYOND, CLEAR, figure="toy2024-2"),
]
LATER = claim("later", "Figure 9", Origin.BEYOND, CLEAR)


def figures(suffix=""):
    seeds = [[0.1, 0.2], [0.01, 0.02], [0.001, 0.002]]
    curves = [band("ours", [1.0, 2.0, 4.0], seeds), Series("talk", [1.0, 4.0], [0.1, 0.01], paper=True)]
    heat = HeatMap(
        ["a", "b"],
        ["c"],
        [[0.1, 0.9]],
        [["share 0.1 of 3", "share 0.9 of 3"]],
        [["", ""]],
        (0.0, 1.0),
        Colours.SEQUENTIAL,
    )
    panels = [
        Panel("A", "rank", "error", curves, log_x=True, log_y=True),
        Panel("B", "x", "y", heat_map=heat),
    ]
    return [
        Figure(
            f"toy2024-1{suffix}", "The first figure", "It falls.", "Here it falls.", panels, ("toy2024/one",)
        ),
        Figure(f"toy2024-2{suffix}", "The second figure", "It rises.", "", panels[:1] * 4, ("toy2024/one",)),
    ]


def findings():
    panel = Panel("Picture", "rank", "error", [Series("c", [1.0, 2.0], [1.0, 0.5])])
    said = {"figure": "toy2024-1", "link": "README.md", "seeds": 3, "panel": panel}
    return [
        Finding("first", Question.UPDATES, "Rank 2.", "It is 2.03 here.", ("toy2024.clear",), **said),
        Finding("second", Question.HEADS, "No.", "It is 0.18 at least.", ("toy2024.vague",), **said),
        Finding("third", Question.DEPTH, "A little.", "It is 0.6 still.", ("toy2024.later",), **said),
        Finding(
            "other", Question.DEPTH, "Memory.", "It is 1.1.", ("toy2024.against",), contradicts=True, **said
        ),
    ]


PAPER = Paper(
    "toy2024", "On toys", "Toy, 2024", lambda scale: [], CLAIMS, lambda results: figures(), "Chosen here."
)


def sections():
    small = Section(
        PAPER, "quick", [judge(one, pd.DataFrame()) for one in CLAIMS], figures(), PROVENANCE,
        unfinished=[Unfinished(LATER, LATER.checks(pd.DataFrame()))], findings=findings(),
    )  # fmt: skip
    large = Section(
        PAPER, "paper", [judge(CLAIMS[0], pd.DataFrame())], figures("-paper"), PROVENANCE, suffix="-paper",
        notes=["toy2024/one: 1 of 1 cells were run."], findings=findings()[:1],
    )  # fmt: skip
    return [small, large]


def other_seeds():
    """The same claims with seeds from 1000 on: one is reversed, one survives, one is decided now, one has no verdict."""
    there = [
        claim("clear", "Figure 1", Origin.PAPER, (9.0, 9.1, 9.2), LOW),
        CLAIMS[1],
        claim("vague", "Remark 3", Origin.READING, CLEAR),
    ]
    small, large = sections()
    seeds = pd.concat([PROVENANCE.assign(seed=seed) for seed in (1000, 1001, 1002)])
    return [replace(small, judgements=[judge(one, pd.DataFrame()) for one in there], provenance=seeds), large]
