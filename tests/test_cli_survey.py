import io
import json
import sys

import pandas as pd
import pytest

from rankscope import cli
from rankscope.papers.amsel2024.survey import survey


def call(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["rankscope", "survey", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_the_survey_is_a_table_for_people(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = call(monkeypatch, capsys)
    assert code == 0
    assert "BERT-Large" in out
    assert "budget" in out


def test_the_survey_for_machines_is_whole(monkeypatch, capsys):
    expected = survey()
    _, out, _ = call(monkeypatch, capsys, "--json")
    rows = json.loads(out)
    assert [row["model"] for row in rows] == list(expected["model"])
    assert rows[0].keys() == set(expected.columns)
    _, out, _ = call(monkeypatch, capsys, "--csv")
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(out)), expected)


def test_the_figure_is_written(monkeypatch, capsys, tmp_path):
    code, _, err = call(monkeypatch, capsys, "--json", "--figure", tmp_path / "figures")
    assert code == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "amsel2024-survey.png",
        "amsel2024-survey.pdf",
    }
    assert "amsel2024-survey.png" in err


def test_two_formats_at_once_are_refused(monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, "--json", "--csv")
    assert code == 2
    assert err == "rankscope: --json and --csv ask for two formats at once: choose one.\n"
