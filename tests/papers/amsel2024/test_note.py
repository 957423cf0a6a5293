"""The script of the note for the authors shows what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.published import overflowed, replications

ROOT = Path(__file__).parents[3]
PAGES = ("docs/note-for-the-authors.md", "src/rankscope/papers/amsel2024/EXPERIMENTS.md")


def test_the_note_quotes_what_the_script_prints():
    """To within what another processor's rounding changes in a thousand steps."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "repeated_epochs.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    note = (ROOT / "docs/note-for-the-authors.md").read_text()
    quoted = note.partition("```\n")[2].partition("```")[0].splitlines()
    printed = done.stdout.splitlines()
    assert printed[0] == quoted[0] == "two epochs are equal: True"
    for one, other in zip(printed[1:], quoted[1:], strict=True):
        (name, number), (same, said) = (line.split(": ") for line in (one, other))
        assert name == same
        assert abs(float(number) - float(said)) < 0.05, (one, other)


def test_the_note_quotes_the_tables():
    """Every number of the note's table is that of results/ or of the talk's values."""
    repeated = pd.read_parquet(ROOT / "results" / "amsel2024-repeated.parquet")
    fresh = pd.read_parquet(ROOT / "results" / "amsel2024-figure1.parquet")
    published = pd.read_csv(ROOT / "src/rankscope/papers/amsel2024/published.csv", dtype={"figure": str})
    rows = {}
    for name, table in {
        "repeated": repeated,
        "fresh": fresh,
        "published": published[published["figure"] == "1"],
    }.items():
        rows[name] = table[(table["layers"] == 3) & (table["budget"] == 1)].groupby("rank")
    wanted = [
        rows["published"]["error"].first(), rows["repeated"]["best_epoch"].min(), rows["repeated"]["error"].mean(),
        rows["fresh"]["error"].mean(),
    ]  # fmt: skip
    for page in PAGES:
        lines = (ROOT / page).read_text().splitlines()
        start = next(place for place, line in enumerate(lines) if re.match(r"\| (3, 1 \| )?published", line))
        for line, values in zip(lines[start : start + 4], wanted, strict=True):
            said = [float(cell) for cell in line.split("|")[1:-1] if re.fullmatch(r" *\d?\.\d+ *", cell)]
            assert len(said) == 7, line
            for one, value in zip(said, values, strict=True):
                assert abs(one - value) <= 0.51 * 10 ** -len(str(one).partition(".")[2]), (line, one, value)


def test_what_is_said_of_the_published_values_is_what_the_tables_give():
    tables = {
        f"amsel2024/{name}": pd.read_parquet(ROOT / "results" / f"amsel2024-{name}.parquet")
        for name in ("repeated", "figure1")
    }
    fitted, new, learned = replications(Results(tables, lambda key: {}))
    both = (len(fitted.agreeing), len(fitted.compared))
    note = (ROOT / "docs/note-for-the-authors.md").read_text()
    assert (
        "Of the {1} points that we can compare so far (eight of the nine lines), {0} are".format(*both)
        in note
    )
    found = (ROOT / "src/rankscope/papers/amsel2024/EXPERIMENTS.md").read_text()
    assert "**{} of the {} published values that can be compared agree".format(*both) in found
    assert f"on fresh points {len(new.agreeing)} of {len(new.compared)} agree" in found
    within = [sum(abs(point.difference) <= share for point in fitted.compared) for share in (0.05, 0.1, 0.2)]
    assert "({} within 5%, {} within 10%, {} within 20%)".format(*within) in found
    assert f"plot ({within[1]} within 10%)" in note
    repeated = tables["amsel2024/repeated"]
    seeds = repeated[~overflowed(repeated)].groupby(["layers", "budget", "rank"])["seed"].nunique()
    assert f"{(seeds == 1).sum()} of the {len(seeds)} rest on one\nseed" in found
    norms = [f"{point.measured:,.0f}" for point in learned.points if point.where.startswith("norm")]
    assert "is {} with one\nhead, {} with 8 and {} with 64".format(*norms) in found
    for path in ("CHANGELOG.md", "README.md"):
        assert "{} of {} published values".format(*both) in (ROOT / path).read_text(), path


def test_the_control_is_everywhere_that_of_the_notebook():
    """The authors' recipe on fresh points, which separates the data from the recipe."""
    notebook = (ROOT / "docs/notebook/2026-11-16-recipes-for-figure-1.md").read_text()
    (row,) = re.findall(r"\| the authors', 100,000 steps \|(.*)\|", notebook)
    numbers = " ".join(row.replace("|", " ").split())
    for said in ((ROOT / path).read_text() for path in PAGES):
        assert numbers in said
