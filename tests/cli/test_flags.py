"""One meaning for each flag; old spellings name the new one; tables fit a terminal of 80 columns."""

import json

import pytest
import typer

from rankscope.catalogue import PAPERS
from rankscope.cli.app import COMMANDS, RENAMED, app, tell
from rankscope.cli.tables import show_table
from rankscope.papers.amsel2024.survey import survey

MEANINGS = {"--out": {"folder"}, "--page": {"folder"}, "--csv": {"file"}, "--json": {"JSON"}}


def options():
    """Every option of every command: the command, the spelling, its help."""
    from importlib import import_module

    for module, _ in COMMANDS.values():
        import_module(f"rankscope.cli.{module}")
    commands = typer.main.get_command(app).commands
    return [
        (name, spelling, parameter.help or "")
        for name, command in commands.items()
        for parameter in command.params
        for spelling in parameter.opts
        if spelling.startswith("--")
    ]


@pytest.mark.parametrize("flag", MEANINGS)
def test_a_flag_means_one_thing_in_all_commands(flag):
    said = {name: help_ for name, spelling, help_ in options() if spelling == flag}
    assert len(said) > 2
    for name, help_ in said.items():
        assert any(word.lower() in help_.lower() for word in MEANINGS[flag]), (name, help_)


@pytest.mark.parametrize(("command", "old"), RENAMED)
def test_an_old_spelling_is_refused_by_naming_the_new_one(refuses, command, old):
    places = {"heads": ["x"], "neurons": ["x"], "updates": ["--base-model", "x", "--model", "y"]}
    refuses(command, *places.get(command, []), old, "z", saying=f"{old} is now {RENAMED[command, old]}.")
    assert old not in {spelling for name, spelling, _ in options() if name == command}


def test_a_run_that_is_named_as_the_output_is_not_overwritten(cli, finished_run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for command in ("export", "report"):
        code, _, err = cli(command, "--out", finished_run)
        assert code == 2
        assert f"is a run to read: rankscope {command} {finished_run}." in err


def test_claims_are_filtered(cli, finished_run):
    def ids(*args):
        code, out, _ = cli("claims", *args, "--json")
        assert code == 0
        return [one["id"] for one in json.loads(out)]

    assert ids("li2024") == [claim.id for claim in PAPERS["li2024"].claims]
    assert ids("--only", "fig1a", "--only", "amsel2024.hardm*") == ["amsel2024.hardmax", "li2024.fig1a"]
    own = ids("li2024", "--origin", "paper")
    assert own == [c.id for c in PAPERS["li2024"].claims if c.origin.name == "PAPER"]
    found = [ids("li2024", "--verdict", verdict, "--run", finished_run) for verdict in ("holds", "fails")]
    assert all(found)
    assert not set(found[0]) & set(found[1])


@pytest.mark.parametrize(
    ("name", "saying"),
    [("fig1", "No claim 'fig1'. Did you mean 'fig1"), ("li2024.nothing*", "No claim 'li2024.nothing*'.")],
)
def test_an_unknown_claim_names_the_nearest(refuses, name, saying):
    refuses("claims", "--only", name, saying=saying)


@pytest.mark.parametrize("columns", [80, 200])
def test_a_table_fits_the_terminal_and_loses_nothing(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = survey()
    show_table(
        rows[["year", "model", "dim", "layers", "hidden", "rank", "value_rank", "heads", "budget"]], "All"
    )
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    assert all(str(budget) in out for budget in rows["hidden"].dropna().astype(int))


def test_heads_print_what_random_weights_would_use(cli, zoo):
    code, out, _ = cli("heads", zoo / "llama")
    assert code == 0
    assert "Random heads of rank" in out
    rows = [line for line in out.splitlines() if line.startswith("decoder")]
    assert len(rows) == 24, "three tables below each other, of eight heads each"
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize("terminal", [True, False])
def test_a_sentence_is_broken_between_words_on_a_terminal_and_whole_in_a_file(monkeypatch, capsys, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "30")
    path = "/a/path/that/is/longer/than/a/line/of/the/terminal"
    tell(f"No word is broken here, and {path} stays whole.\nA second line.")
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == f"No word is broken here, and {path} stays whole. A second line."
    assert lines[-1] == "A second line."
    assert len(lines) == (4 if terminal else 2)
