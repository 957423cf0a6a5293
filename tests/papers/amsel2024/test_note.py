"""The script of the note for the authors shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from rankscope.lab.paper import Results
from rankscope.papers.amsel2024.published import replications

ROOT = Path(__file__).parents[3]


def test_the_script_shows_two_equal_epochs_and_two_errors():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "repeated_epochs.py")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "1"},  # two threads of so small steps wait for each other on a busy machine
    )
    equal, fitted, new = done.stdout.splitlines()
    assert equal == "two epochs are equal: True"
    fit, fresh = (float(re.search(r"[\d.]+$", line)[0]) for line in (fitted, new))
    assert fit < 0.6 < 0.9 < fresh


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
    for page in ("docs/note-for-the-authors.md", "src/rankscope/papers/amsel2024/EXPERIMENTS.md"):
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
    fitted, new, _ = replications(Results(tables, lambda key: {}))
    both = (len(fitted.agreeing), len(fitted.compared))
    note = (ROOT / "docs/note-for-the-authors.md").read_text()
    assert (
        "Of the {1} points that we can compare so far (eight of the nine lines), {0} are".format(*both)
        in note
    )
    found = (ROOT / "src/rankscope/papers/amsel2024/EXPERIMENTS.md").read_text()
    assert "**{} of the {} published values that can be compared agree".format(*both) in found
    assert f"on fresh points {len(new.agreeing)} of {len(new.compared)} agree" in found
    for path in ("CHANGELOG.md", "README.md"):
        assert "{} of {} published values".format(*both) in (ROOT / path).read_text(), path
