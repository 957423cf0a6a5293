"""What the page says of runs at paper scale that are not whole."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rankscope.catalogue import PAPERS
from rankscope.core import RankscopeError
from rankscope.figures.printed import save_static
from rankscope.lab import AtMost, Check, Grid, Judgement, Scale, Verdict
from rankscope.lab.partial import Part, boxes, judged
from rankscope.lab.results import results_section
from rankscope.lab.section import Section, Unfinished
from rankscope.lab.sections import with_results
from rankscope.papers.amsel2024.claims import CLAIMS
from rankscope.papers.amsel2024.experiments import FIG1
from rankscope.report import write_report
from tests.browser import draw, errors
from tests.lab.kept import keep, provenance, records, talk_error

AMSEL = PAPERS["amsel2024"]
ROOT = Path(__file__).parents[2]


def one_layer(rank, layers, budget, seed):
    return layers == 1


def one_layer_and_a_bit(rank, layers, budget, seed):
    return (layers == 1 and budget < 64) or (layers == 3 and budget == 8 and rank > 2)


@pytest.fixture(scope="module")
def partly(tmp_path_factory):
    return keep(tmp_path_factory.mktemp("partly"), one_layer_and_a_bit)


def short(found):
    return {item.claim.id.removeprefix("amsel2024.") for item in found}


def test_only_claims_about_what_was_run_have_a_verdict(tmp_path):
    section = results_section(AMSEL, keep(tmp_path, one_layer))
    assert short(section.judgements) == {"one-layer", "budget", "identity"}
    assert short(section.unfinished) == {"depth-helps", "depth-behind", "depth-artefact"}
    assert {judgement.verdict for judgement in section.judgements} == {Verdict.HOLDS}
    assert all(judgement.seeds == 5 for judgement in section.judgements)
    assert section.notes[0] == "amsel2024/figure1: 105 of 315 cells were run. Not run: layers 3, 5."


def test_a_claim_not_run_in_full_keeps_the_checks_that_are_whole(partly):
    section = results_section(AMSEL, partly)
    assert section.judgements == []
    so_far = {item.claim.id: [check.what for check in item.so_far] for item in section.unfinished}
    assert so_far["amsel2024.one-layer"] == [
        "error at full rank, budget 1",
        "log₂ of best lower rank over full rank, budget 1",
        "error at full rank, budget 8",
        "log₂ of best lower rank over full rank, budget 8",
    ]
    assert so_far["amsel2024.budget"] == so_far["amsel2024.depth-helps"] == []


def test_a_claim_is_judged_without_a_cell_just_if_that_cell_cannot_change_its_checks():
    """Each cell of a seed is left out in turn; changing its values in the whole table tells whether it matters."""
    experiment = replace(FIG1, grid=Grid(seed=range(2), rank=(1, 8, 64), layers=(1, 3, 5), budget=(1, 64)))
    cells = experiment.cells()
    whole = records(cells, talk_error)
    matters = 0
    for claim in (claim for claim in CLAIMS if claim.experiment == FIG1.name):
        said = repr(claim.checks(whole))
        for cell in (cell for cell in cells if cell.seed == 0):
            here = whole["cell"] == cell.key()
            other = whole.copy()
            other.loc[here, "error"] = 1e-6
            other.loc[here & other["angle"].notna(), ["angle", "sharpness"]] = 1.0
            changes = repr(claim.checks(other)) != said
            found = judged(claim, Part(experiment, whole[~here].reset_index(drop=True), [cell], 0))
            assert isinstance(found, Judgement) != changes, (claim.id, cell.point, cell.seed)
            matters += changes
    assert 25 < matters < 75


@pytest.mark.parametrize("largest", [True, False])
def test_an_extreme_of_all_cells_is_not_known_without_one_of_them(largest):
    experiment = replace(FIG1, grid=Grid(seed=range(2), rank=(1, 8, 64), layers=(1,), budget=(1,)))
    cells = experiment.cells()
    whole = records(cells, talk_error)

    def extreme(table):
        per_seed = table.groupby("seed")["error"]
        values = per_seed.max() if largest else per_seed.min()
        return [Check("extreme", tuple(values), AtMost(2.0))]

    claim = replace(CLAIMS[0], checks=extreme)
    assert isinstance(judged(claim, Part(experiment, whole, [])), Judgement)
    here = whole["cell"] == cells[-2].key()
    some = whole[~here].reset_index(drop=True)
    assert isinstance(judged(claim, Part(experiment, some, [cells[-2]])), Unfinished)


def test_the_best_of_the_ranks_is_not_known_without_one_of_them(tmp_path):
    without = keep(tmp_path, lambda rank, layers, budget, seed: layers == 1 and rank != 2)
    section = results_section(AMSEL, without)
    assert short(section.judgements) == {"identity"}
    (one,) = (item for item in section.unfinished if item.claim.id == "amsel2024.one-layer")
    assert [check.what for check in one.so_far] == [f"error at full rank, budget {b}" for b in (1, 8, 64)]


def test_a_claim_that_picks_its_rows_by_a_measured_value_is_not_judged_without_them():
    claim = next(claim for claim in CLAIMS if claim.experiment == "amsel2024/two-points")
    (experiment,) = (e for e in AMSEL.experiments(Scale.SMOKE) if e.name == claim.experiment)
    cells = experiment.cells()
    table = pd.DataFrame(
        [
            {
                **dict(cell.point),
                "seed": cell.seed,
                "cell": cell.key(),
                "heads": 4,
                "floor": 0.1,
                "error": 0.3,
            }
            for cell in cells
        ]
    )
    assert isinstance(judged(claim, Part(experiment, table, [], 0)), Judgement)
    missing = [cell for cell in cells if dict(cell.point)["rank"] == 2]
    some = table[table["rank"] != 2].reset_index(drop=True)
    found = judged(claim, Part(experiment, some, missing, 0))
    assert isinstance(found, Unfinished)
    assert [check.what for check in found.so_far] == [
        f"error over floor, 4 heads of rank {rank}" for rank in (1, 4)
    ]


def test_a_cell_that_did_not_train_makes_a_claim_undecided_and_not_unfinished(tmp_path):
    folder = keep(tmp_path, one_layer)
    table = pd.read_parquet(folder / "amsel2024-figure1.parquet")
    table.loc[0, "trained"] = False
    table.to_parquet(folder / "amsel2024-figure1.parquet", index=False)
    section = results_section(AMSEL, folder)
    verdicts = {judgement.claim.id: judgement.verdict for judgement in section.judgements}
    assert verdicts["amsel2024.one-layer"] is Verdict.UNDECIDED
    assert len(verdicts) == 3


def test_figure_1_marks_what_was_not_run_beside_the_talks_curves(partly, tmp_path):
    figure, identity = results_section(AMSEL, partly).figures
    run = [("1 layer", 1), ("1 layer", 8), ("3 layers", 8)]
    assert [panel.title for panel in figure.panels] == [
        f"{layers}, budget {budget}{'' if (layers, budget) in run else ' (not run)'}"
        for layers in ("1 layer", "3 layers", "5 layers")
        for budget in (1, 8, 64)
    ]
    series = {panel.title: {one.name: list(one.x) for one in panel.series} for panel in figure.panels}
    assert series["3 layers, budget 8"]["fresh batches, new points"] == [4.0, 8.0, 16.0, 32.0, 64.0]
    assert series["5 layers, budget 8 (not run)"]["fresh batches, new points"] == []
    assert all(len(curves["published"]) == 7 for curves in series.values())
    assert identity.panels[0].series[0].x == ["1", "8"]
    assert save_static(figure, tmp_path)[0].read_bytes().startswith(b"\x89PNG")


def test_without_a_full_rank_cell_there_is_no_figure_of_what_full_rank_learns(tmp_path):
    section = results_section(AMSEL, keep(tmp_path, lambda rank, layers, budget, seed: rank < 4))
    assert [figure.id for figure in section.figures] == ["amsel2024-1-paper"]


def test_each_commits_cells_are_told_with_device_seconds_and_days(partly):
    _, first, second, code = results_section(AMSEL, partly).notes
    assert first == (
        "amsel2024/figure1: 35 cells on A GPU, float32, torch 2.13, rankscope 0.1.0, commit one commit: "
        "350 s, finished 2026-11-01."
    )
    assert "60 cells" in second
    assert second.endswith("commit another: 600 s, finished 2026-11-03.")
    assert code == (
        "amsel2024/figure1: the code that trains and measures it has changed since (digests one commit, another), "
        "and nothing vouches for the code of today."
    )


def test_cells_of_other_settings_are_counted_and_not_shown(tmp_path):
    folder = keep(tmp_path, one_layer)
    other = replace(FIG1, train=FIG1.train.replace(steps=10)).cells()[:2]
    for name, rows in (("amsel2024-figure1", records(other, lambda cell: 9.0)), ("cells", provenance(other))):
        kept = pd.read_parquet(folder / f"{name}.parquet")
        pd.concat([kept, rows]).to_parquet(folder / f"{name}.parquet", index=False)
    section = results_section(AMSEL, folder)
    assert section.notes[0].endswith("The folder has 2 more cells, of other settings; they are not shown.")
    assert len(section.provenance) == 105
    assert max(y for series in section.figures[0].panels[0].series for y in series.y) < 2


def test_a_folder_without_tables_changes_nothing_and_a_damaged_one_is_named(tmp_path):
    own = Section(AMSEL, "quick", [], [], pd.DataFrame())
    assert with_results([own], None) == with_results([own], tmp_path) == [own]
    keep(tmp_path, one_layer)
    assert [section.suffix for section in with_results([own], tmp_path)] == ["", "-paper"]
    (tmp_path / "amsel2024-figure1.parquet").write_bytes(b"short")
    with pytest.raises(RankscopeError, match=r"amsel2024-figure1\.parquet cannot be read .* move it away"):
        with_results([own], tmp_path)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([(1, 1), (1, 2), (8, 1), (8, 2)], [""]),
        ([(1, 1), (1, 2)], ["a 1"]),
        ([(1, 2), (8, 2)], ["b 2"]),
        ([(1, 1), (8, 1), (8, 2)], ["a 1 · b 1", "a 8"]),
    ],
)
def test_missing_points_are_told_in_few_words(points, words):
    assert boxes({"a": (1, 8), "b": (1, 2)}, points) == words


@pytest.mark.browser
def test_both_scales_stand_on_one_page_with_ids_of_their_own(browser, monkeypatch, tmp_path):
    section = results_section(AMSEL, keep(tmp_path, one_layer))
    (figure, _) = section.figures
    at_paper = replace(section, figures=[figure])
    quick = replace(at_paper, suffix="", figures=[replace(figure, id="amsel2024-1")])
    monkeypatch.setattr(
        "rankscope.figures.printed.save_static", lambda figure, folder: (folder / figure.id).touch()
    )
    page = write_report(tmp_path / "page", [quick, at_paper])
    drawn = {path.name for path in (tmp_path / "page" / "figures").iterdir()}
    assert drawn == {"amsel2024-1", "amsel2024-1-paper"}
    browser.get(page.as_uri())
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    named = [name for name in ids if name.startswith(("figure-", "claim-", "amsel2024"))]
    assert len(named) == len(set(named)) == 2 * (1 + 6 + 1)
    for figure in browser.find_elements("css selector", ".figure"):
        draw(browser, figure)
    for link in browser.find_elements("css selector", "a[href^='#']"):
        assert link.get_attribute("href").split("#")[1] in ids
    said = browser.execute_script("return document.body.textContent")
    assert "105 of 315 cells were run. Not run: layers 3, 5." in said
    row = browser.find_element("id", "claim-amsel2024.depth-helps-paper")
    assert "not run in full" in row.text
    assert not row.find_elements("css selector", ".verdict")
    assert errors(browser) == []


@pytest.mark.browser
def test_an_interactive_legend_names_what_was_not_run(browser, monkeypatch, partly, tmp_path):
    section = results_section(AMSEL, partly)
    monkeypatch.setattr(
        "rankscope.figures.printed.save_static", lambda figure, folder: (folder / figure.id).touch()
    )
    browser.get(write_report(tmp_path, [replace(section, figures=section.figures[:1])]).as_uri())
    draw(browser, browser.find_element("css selector", ".figure"))
    panels = section.figures[0].panels
    wanted = [series.entry for panel in panels for series in panel.series]
    assert "fresh batches, new points (not run)" in wanted
    found = browser.find_elements("css selector", ".figure text[class^='legend']")
    assert [entry.get_attribute("textContent") for entry in found] == wanted
    assert errors(browser) == []


def test_every_cell_that_is_kept_has_the_papers_settings():
    kept = pd.read_parquet(ROOT / "results" / "cells.parquet")
    ours = [one for paper in PAPERS.values() for one in paper.experiments(Scale.PAPER)]
    keys = {cell.key() for one in ours if one.name in set(kept["experiment"]) for cell in one.cells()}
    assert set(kept["key"]) <= keys


def test_figures_that_need_arrays_are_left_out_and_that_is_said(tmp_path):
    keep(tmp_path, lambda **point: point["layers"] == 1)
    paper = replace(PAPERS["amsel2024"], figures=lambda results: [results.arrays("a cell")])
    kept = results_section(paper, tmp_path)
    assert kept is not None
    assert kept.figures == []
    assert any("need arrays" in note for note in kept.notes)


def test_tables_without_what_figures_need_are_named_with_what_to_do(tmp_path):
    def figures(results):
        raise KeyError("rank")

    folder = keep(tmp_path, one_layer)
    with pytest.raises(
        RankscopeError,
        match=r"the tables of amsel2024 do not have what its figures need \(KeyError: 'rank'\)\. Restore them",
    ):
        results_section(replace(AMSEL, figures=figures), folder)
