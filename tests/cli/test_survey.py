import json

import pandas as pd
import pytest

from rankscope.papers.amsel2024.survey import survey


def test_the_survey_is_a_table_for_people(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = cli("survey")
    assert code == 0
    assert "BERT-Large" in out
    assert "budget" in out


def test_the_survey_for_machines_is_whole(cli, tmp_path):
    expected = survey()
    _, out, _ = cli("survey", "--json")
    rows = json.loads(out)
    assert [row["model"] for row in rows] == list(expected["model"])
    assert rows[0].keys() == set(expected.columns)
    assert [row["budget"] for row in rows] == pytest.approx(list(expected["budget"]), rel=1e-14)
    assert cli("survey", "--csv", tmp_path / "survey.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "survey.csv"), expected)


def test_the_figure_is_written(cli, tmp_path):
    code, _, err = cli("survey", "--json", "--out", tmp_path / "figures")
    assert code == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "amsel2024-survey.png",
        "amsel2024-survey.pdf",
    }
    assert "amsel2024-survey.png" in err
