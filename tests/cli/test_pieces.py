import json

import pandas as pd
import pytest

from rankscope.catalogue import PAPERS
from rankscope.lab import Scale, Store
from rankscope.lab.selection import Selection
from rankscope.runs import remember
from tests.command_line import BOTH, LEFT


def test_a_piece_has_a_page_without_verdicts_that_it_cannot_give(cli, drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--where", "budget=1")
    assert cli("reproduce", "amsel2024", "--scale", "smoke", *piece)[0] == 0
    code, out, _ = cli("report", "--json")
    assert code == 0
    found = json.loads(out)
    assert {claim["experiment"] for claim in found} == {"amsel2024/figure1", LEFT}
    assert {claim["verdict"] for claim in found} == {None}
    page = (tmp_path / "report" / "index.html").read_text()
    assert "amsel2024/figure1: 4 of 16 cells were run. Not run: layers 1 · budget 4; layers 3." in page
    assert "its verdicts say nothing about the paper" in page
    assert "depth-behind" in cli("report")[1]
    assert cli("export")[0] == 0


def test_a_folder_remembers_the_papers_of_one_scale_and_a_claim_changes_nothing(tmp_path):
    store, both = Store(tmp_path), [PAPERS["li2024"], PAPERS["amsel2024"]]

    def after(papers, scale, *only):
        remember(store, Selection(papers, scale, None, only))
        kept = store.note("selection")
        return kept["papers"], kept["scale"]

    assert after(both, Scale.SMOKE, "li2024.fig2") == (["li2024"], "smoke")
    assert after(both[1:], Scale.SMOKE) == (BOTH, "smoke")
    assert after(both, Scale.QUICK, "li2024.fig2") == (BOTH, "smoke")
    assert after(both[:1], Scale.QUICK) == (["li2024"], "quick")


def test_a_piece_leaves_seeds_and_papers_of_a_page_as_they_are_and_begins_one_with_its_own(tmp_path):
    def page(folder, *runs):
        store = Store(tmp_path / folder)
        for seeds, experiment in runs:
            remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, seeds, experiment=experiment))
        return store.note("selection")["seeds"]

    piece = "amsel2024/figure1"
    assert page("one", (1, piece)) is None
    assert page("own", (2, piece)) is None
    assert page("more", (7, piece)) == 7
    assert page("before", (4, None), (1, piece)) == 4
    assert page("not raised", (4, None), (5, piece)) == 4
    assert page("whole", (7, piece), (3, None)) == 3
    assert page("raised", (1, piece), (7, piece), (8, piece), (1, piece)) == 8
    assert page("not raised any more", (7, piece), (None, None), (8, piece)) is None
    store = Store(tmp_path / "pieces of both")
    remember(store, Selection([PAPERS["li2024"]], Scale.SMOKE, None, experiment="li2024/regime"))
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 7, experiment=piece))
    assert store.note("selection")["papers"] == BOTH
    store = Store(tmp_path / "both")
    remember(store, Selection([PAPERS[name] for name in BOTH], Scale.SMOKE, None))
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 7, experiment=piece))
    kept = store.note("selection")
    assert (kept["papers"], kept["seeds"]) == (BOTH, None)
    remember(store, Selection([PAPERS["amsel2024"]], Scale.SMOKE, 3))
    kept = store.note("selection")
    assert (kept["papers"], kept["seeds"]) == (["amsel2024"], 3), "the other paper has other seeds"


def test_pieces_of_an_experiment_run_one_by_one_and_export_to_one_table(cli, tmp_path):
    piece = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/figure1")
    piece += ("--where", "layers=1")
    kept = tmp_path / "kept"
    ranks = {1: ("--where", "rank=1,4"), 4: ("--where", "rank=1", "--where", "rank=4")}
    for place, budget in enumerate((1, 4), start=1):
        out = tmp_path / f"run-{budget}"
        code, printed, err = cli(*piece, *ranks[budget], "--where", f"budget={budget}", "--out", out)
        assert (code, printed) == (0, "")
        assert "4 trainings" in err
        assert not (out / "index.html").exists(), "no page, no verdicts"
        code, printed, _ = cli("export", out, "--out", kept, "--parquet-only")
        assert code == 0
        assert f"amsel2024-figure1.parquet: {4 * place} rows" in printed
    table = pd.read_parquet(kept / "amsel2024-figure1.parquet")
    assert set(zip(table["rank"], table["layers"], table["budget"], table["seed"], strict=True)) == {
        (rank, 1, budget, seed) for rank in (1, 4) for budget in (1, 4) for seed in (0, 1)
    }
    assert sorted(path.name for path in kept.iterdir()) == ["amsel2024-figure1.parquet", "cells.parquet"]


def test_a_piece_of_one_seed_is_exported_by_its_run_and_afterwards(cli, tmp_path):
    run, during, after = tmp_path / "run", tmp_path / "during", tmp_path / "after"
    piece = ("--experiment", "amsel2024/figure1", "--where", "layers=1", "--where", "budget=1")
    line = ("reproduce", "amsel2024", "--scale", "smoke", *piece, "--out", run, "--export", during)
    code, _, err = cli(*line, "--seeds", "1")
    assert code == 0
    assert f"{during / 'amsel2024-figure1'}.parquet: 2 rows" in err
    assert "rankscope export" not in err
    assert cli("export", run, "--out", after, "--parquet-only")[0] == 0
    assert pd.read_parquet(during / "cells.parquet")["seed"].tolist() == [0, 0]
    assert "4 rows" in cli(*line, "--seeds", "2")[2]
    assert "4 rows" in cli("export", run, "--out", after, "--parquet-only")[1]


@pytest.mark.parametrize(
    ("where", "message"),
    [("layer=1", "no axis 'layer'. Did you mean 'layers'?"), ("layers=2", "Axis 'layers' has no '2'.")],
)
def test_a_piece_that_is_not_on_the_grid_runs_nothing(cli, tmp_path, where, message):
    args = ("--scale", "smoke", "--experiment", "amsel2024/figure1", "--where", where, "--out", tmp_path)
    code, out, err = cli("reproduce", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.rglob("*.safetensors"))
    assert Store(tmp_path).finished(*PAPERS["amsel2024"].experiments(Scale.SMOKE)) == set()
