"""What Python gets of a run: tables, a row per verdict, figures by their id, and a line that says what is there."""

import pytest

from rankscope.core import InputError
from rankscope.lab import Scale, Store, run
from rankscope.lab.loaded import loaded
from rankscope.lab.runner import schedule
from rankscope.lab.sections import SMOKE
from rankscope.lab.selection import Selection
from tests.lab.test_sections import experiments, paper


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("run"))
    run(schedule(experiments(Scale.SMOKE)[:1], store, "cpu"), store, "cpu")
    return store


@pytest.fixture(scope="module")
def found(store):
    return loaded(store, Selection([paper()], Scale.SMOKE))


def test_experiments_with_a_finished_cell_have_a_table(found, store):
    assert list(found.tables) == ["toy/first"]
    assert len(found.tables["toy/first"]) == 6
    assert found.path == store.folder
    assert found.notes == (SMOKE,)


def test_a_verdict_has_the_check_that_decided_it(found):
    table = found.tables["toy/first"].groupby("seed")["total"].min()
    first = found.verdicts.iloc[0]
    assert first.drop(["low", "high"]).to_dict() == {
        "claim": "toy.good", "verdict": "holds", "measured": pytest.approx(table.mean()), "threshold": "≥ 0", "seeds": 2,
        "origin": "the paper's statement", "statement": "It is so.",
    }  # fmt: skip
    assert first["low"] < first["measured"] < first["high"]
    assert found.verdicts["claim"].tolist() == ["toy.good", "toy.other"]


def test_a_figure_is_found_by_its_id(found):
    assert list(found.figures) == ["toy-first"]
    assert len(found.plot("toy-first").axes) == 1
    with pytest.raises(InputError, match=r"No figure 'toy-frist' in .*toy-first"):
        found.plot("toy-frist")


def test_a_run_says_what_it_holds(found, store):
    said = f"Run({str(store.folder)!r}: toy at scale smoke; 1 tables, 1 figures; 2 holds)"
    assert repr(found) == said
    assert found._repr_html_().startswith("<p>Run(&#x27;")
    assert "toy.good" in found._repr_html_()


def test_a_run_without_a_finished_cell_says_so(tmp_path):
    empty = loaded(Store(tmp_path), Selection([paper()], Scale.SMOKE))
    assert repr(empty).endswith("0 tables, 0 figures; no verdicts)")
    assert (empty.tables, empty.figures, len(empty.verdicts)) == ({}, {}, 0)


def test_cells_of_todays_code_are_counted_whatever_their_settings(store):
    first, second = experiments(Scale.SMOKE)
    assert store.count(first) == 6
    assert store.count(first, second) == 6
    assert store.count() == 0
