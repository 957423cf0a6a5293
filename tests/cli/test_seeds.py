"""The same experiments with other random draws, and what that says about the verdicts."""

import json

import pytest

from rankscope.lab import Store

ONLY = ("reproduce", "amsel2024", "--scale", "smoke", "--only", "amsel2024.hardmax")


@pytest.fixture
def run(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankscope.figures.printed.save_static", lambda figure, folder: None)

    def ran(name, *more):
        code, _, err = cli(*ONLY, "--out", tmp_path / name, *more)
        assert code == 0, err
        return tmp_path / name

    return ran


def seeds(folder):
    with Store(folder, reading=True).database.read() as database:
        return {seed for (seed,) in database.execute("SELECT seed FROM cells")}


def test_a_report_says_which_verdicts_other_seeds_share(cli, run):
    first, other = run("first"), run("other", "--first-seed", 1000)
    assert {1000 + seed for seed in seeds(first)} == seeds(other)
    code, out, err = cli("report", first, "--beside", other)
    assert code == 0, err
    assert "verdicts that both runs decide are the same" in " ".join(out.split())
    assert "verdicts that both runs decide are the same" in (first / "index.html").read_text()
    _, out, _ = cli("report", first, "--beside", other, "--json")
    (here,) = [one for one in json.loads(out) if one["id"] == "amsel2024.hardmax" and one["scale"] == "smoke"]
    there = here["other_seeds"]
    assert (there["verdict"], there["first_seed"]) == (here["verdict"], 1000)
    assert there["fate"] in {"survives", "undecided with both"}
    code, _, err = cli("report", first, "--beside", first)
    assert (code, "there is nothing to compare" in err) == (2, True)
    before = Store(first, reading=True).note("selection")
    assert before["first_seed"] == 0
