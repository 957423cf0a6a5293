"""The documentation site builds without a warning, asks nothing of the network, and its notebooks ran."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Notebooks are run for it: an error in one is an error of the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(page):
    return unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf-8")))


def shown(page):
    """What the cells of a notebook showed."""
    parts = page.read_text("utf-8").split('<div class="output" style="overflow-x: auto">')[1:]
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", part.split("\n<div", 1)[0])).split()) for part in parts]


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]+)"', page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded}"


def test_verdicts_and_benchmarks_are_generated(site):
    for page in ("papers/verdicts.html", "papers/amsel2024.html"):
        assert "full rank is necessary and sufficient" in text_of(site / page), page
    assert "how it was decided" in text_of(site / "papers/li2024.html")
    measured = text_of(site / "benchmarks.html")
    for file in (ROOT / "benchmarks").glob("*.json"):
        assert f'id="{file.stem.lower()}"' in (site / "benchmarks.html").read_text("utf-8"), file.name
    assert "NVIDIA H200" in measured


def test_the_notebook_on_lora_finds_the_planted_ranks(site):
    said = shown(site / "notebooks/lora_rank.html")
    assert said[0].startswith("21 tensors: 17 identical, 4 changed.")
    ranks = re.findall(r"(q_proj|gate_proj)\.weight((?: \d+)+)", said[2])
    assert len(ranks) == 4
    assert {name: {int(rank) for rank in asked.split()[:2]} for name, asked in ranks} == {
        "q_proj": {4},
        "gate_proj": {1},
    }
    error = re.search(r"relative error of the output (\S+) \(base alone (\S+)\)", said[3])
    assert float(error[1]) < 1e-5 < 0.1 < float(error[2])


def test_the_notebook_on_rank_and_heads_sees_what_thin_heads_cannot_learn(site):
    said = shown(site / "notebooks/rank_and_heads.html")
    assert said[0].startswith("1 layer replaced; the same function: True; then 8 heads of rank 8")
    thin, full = map(
        float, re.findall(r"error (\d\.\d+)", next(one for one in said if "heads of rank 1:" in one))
    )
    assert full < 0.15 < 0.4 < thin


def test_the_notebook_on_a_task_of_ones_own_ends_in_a_verdict_and_a_figure(site):
    page = site / "notebooks/own_task.html"
    assert "mine2026.rank-found holds" in " ".join(text_of(page).split())
    assert "A matrix cut to a rank" in page.read_text("utf-8")
    assert page.read_text("utf-8").count("<svg") > 0
