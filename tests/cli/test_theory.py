import json

import pandas as pd
import pytest

from rankscope import theory

KEYS = ["dim", "rank", "heads", "error", "values", "certified", "min_heads", "error_floor"]


def answer(cli, *args):
    code, out, err = cli(*args)
    assert (code, err) == (0, "")
    return out


def test_bound_names_the_least_heads_what_it_assumes_and_where_standard_scaling_stands(cli):
    out = answer(cli, "bound", "--dim", 64, "--rank", 8, "--error", "0.1")
    least, assumes, standard = out.splitlines()
    assert least == "Least heads of rank 8 in dimension 64 for error 0.1: 6,016 (float64)."
    assert assumes == f"Assumes: {theory.assumptions('any')}"
    assert standard == (
        "Standard scaling, heads = dim/rank: 8 heads, error at least 0.176806, excluded: 752 times too few."
    )


def test_bound_with_heads_prints_the_floor_instead(cli):
    out = answer(cli, "bound", "--dim", 64, "--rank", 32, "--heads", 1, "--values", "identity")
    floor, assumes, standard = out.splitlines()
    assert floor == "Error of 1 head of rank 32 in dimension 64: at least 0.331398 (float64)."
    assert "multiple of the identity" in assumes
    assert "2 heads, error at least 0.162" in standard
    assert "excluded" not in standard


def test_full_rank_excludes_nothing(cli):
    out = answer(cli, "bound", "--dim", 64, "--rank", 64, "--error", "0.01", "--certified")
    assert "for error 0.01: 1 (proved by ball arithmetic)." in out
    assert "1 head, error at least 0, not excluded." in out


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--error", "1/10"], {"error": 0.1, "min_heads": 6016}),
        (
            ["--error", "0.1", "--values", "identity", "--certified"],
            {"values": "identity", "certified": True},
        ),
        (["--heads", "8"], {"heads": 8, "error": None, "min_heads": None}),
    ],
)
def test_bound_as_json_has_the_same_keys_whatever_is_asked(cli, args, expected):
    got = json.loads(answer(cli, "bound", "--dim", 64, "--rank", 8, *args, "--json"))
    assert list(got) == KEYS
    assert {name: got[name] for name in expected} == expected
    assert (got["error_floor"] is None) == (got["heads"] is None)


def test_integers_that_json_would_round_are_text(cli):
    args = ("bound", "--dim", 64, "--rank", 1, "--error", "0.05", "--values", "identity", "--certified")
    assert json.loads(answer(cli, *args, "--json"))["min_heads"] == "1622224468340211918"


def test_float64_shows_no_digit_it_does_not_have(cli):
    args = ("bound", "--dim", 64, "--rank", 1, "--error", "0.05", "--values", "identity")
    out = answer(cli, *args)
    assert "for error 0.05: about 1.622224468e+18 (float64; --certified has every digit)." in out
    assert "for error 0.05: 1,622,224,468,340,211,918 (proved" in answer(cli, *args, "--certified")


def test_numbers_beyond_a_float_are_printed(cli, monkeypatch):
    out = answer(cli, "bound", "--dim", 64, "--rank", 8, "--error", "1e-9")
    assert "about 1.772524965e+429 (float64" in out
    assert "excluded: 2.216e+428 times too few." in out
    monkeypatch.setenv("COLUMNS", "160")
    assert "1.77e+429" in answer(cli, "plan", "--dim", 64, "--error", "1e-9")


def test_a_certified_floor_is_not_above_the_truth(cli):
    args = ("bound", "--dim", 16, "--rank", 3, "--heads", 7, "--certified", "--json")
    floor = json.loads(answer(cli, *args))["error_floor"]
    enclosure = theory.error_floor_enclosure(16, 3, 7)
    assert floor <= enclosure.low
    assert floor == pytest.approx(float(enclosure.low), rel=1e-15)


def test_plan_shows_a_layer_of_every_rank_and_says_what_it_covers(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "layers.csv"
    out = answer(cli, "plan", "--dim", 512, "--error", "0.15", "--csv", path)
    rows = [
        line
        for line in out.splitlines()
        if line.split()[:1] and line.split()[0].isdigit() and "layers" not in line
    ]
    assert len(rows) == 10  # ranks 1, 2, 4 … 512
    standard = next(line for line in rows if line.split()[0] == "64")
    assert "excluded" in standard
    assert "Transformer (Attention is all you need)" in standard
    assert "open" in rows[0]
    assert theory.COVERS in out
    assert (
        f"10 of 100 layers: of every rank the value rank with the least floor; all of them are in {path}."
        in out
    )
    pd.testing.assert_frame_equal(
        pd.read_csv(path).astype({"min_heads": object}),
        pd.DataFrame(theory.plan(512, error="0.15")),
        check_dtype=False,
    )


def test_plan_as_json_keeps_within_every_budget(cli):
    args = ("plan", "--dim", 4096, "--params", 50_000_000, "--kv-cache", 4096, "--flops", 10**9, "--json")
    got = json.loads(answer(cli, *args))
    assert got["covers"] == theory.COVERS
    assert all(row["params"] <= 50_000_000 and row["kv_bytes"] <= 4096 for row in got["rows"])
    least = {row["rank"]: row["min_heads"] for row in got["rows"]}
    assert isinstance(least[1], str)
    assert int(least[1]) > 2**53
    assert isinstance(least[128], int)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["bound", "--dim", "64", "--rank", "8"], "pass --error for the least heads, or --heads for the floor."),
        (["bound", "--dim", "64", "--error", "0.1"], "--rank"),
        (["bound", "--dim", "64", "--rank", "0", "--error", "0.1"], "rank=0 is too small. Raise rank to ≥ 1."),
        (["bound", "--dim", "1", "--rank", "1", "--error", "0.1"], "Raise dim to ≥ 2."),
        (["bound", "--dim", "64.5", "--rank", "1", "--error", "0.1"], "'--dim': Input should be a valid integer"),
        (["bound", "--dim", "64", "--rank", "8", "--error", "0.5"], "Lower error below 1/2."),
        (["bound", "--dim", "64", "--rank", "8", "--error", "little"], "Pass one in (0, 1/2)."),
        (["bound", "--dim", "64", "--rank", "8", "--heads", "0"], "heads=0 is too small. Raise heads to ≥ 1."),
        (["bound", "--dim", "64", "--rank", "8", "--heads", "1", "--values", "idntity"], "Did you mean 'identity'?"),
        (["plan", "--dim", "64", "--params", "10"], "No layer fits: one head of rank 1 already takes 256 parameters"),
        (["plan", "--dim", "64", "--kv-cache", "-1"], "kv_cache=-1 is too small. Raise kv_cache to ≥ 1."),
        (["plan", "--dim", "64", "--csv", "missing/layers.csv"], "missing/layers.csv"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_remedy_and_exit_code_2(refuses, args, message):
    refuses(*args, saying=message)


def test_without_flint_a_certified_bound_names_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flint", None)
    args = ("bound", "--dim", 64, "--rank", 8, "--error", "0.1", "--certified")
    code, _, err = cli(*args)
    assert code == 2
    assert "pip install 'rankscope[certified]'" in err
