"""updates on the command line, over tiny models in folders."""

import json
import re

import pandas as pd
import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from rankscope.scope import fidelity
from rankscope.scope import updates as updates_module
from tests.browser import look_at
from tests.scope.test_lora_source import change_config, train
from tests.zoo import SAVED, build


def pair(zoo, name="llama"):
    """The options that name a model before and after training."""
    return ("updates", "--base-model", zoo / name, "--model", zoo / f"{name}-tuned")


@pytest.mark.parametrize("name", SAVED)
def test_updates_are_exported_and_verified(cli, zoo, tmp_path, name):
    out_path = tmp_path / "adapter"
    code, out, _ = cli(*pair(zoo, name), "--rule", "full", "--out", out_path, "--json")
    assert code == 0
    content = json.loads(out)
    assert set(content) == {
        "base_model", "model", "rule", "max_rank", "profile", "include_regex", "base_rounding", "exclude_regex", "summary",
        "tensors", "rules", "curve", "coverage", "plan", "parameters", "lora_config", "axolotl", "adapter",
    }  # fmt: skip
    assert content["adapter"]["logits_error"] < 1e-5 < 0.05 < content["adapter"]["base_logits_error"]
    assert {row["fate"] for row in content["coverage"]} == {"decomposed", "kept whole", "skipped"}
    assert sum(row["share"] for row in content["coverage"]) == pytest.approx(1)
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(zoo / name), out_path)
    assert not list((tmp_path / "cache").glob("rankscope/updates/*")), "what was exported is not kept"


def test_updates_print_rules_coverage_curve_and_snippets(cli, monkeypatch, zoo, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    args = pair(zoo)
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
    code, out, err = cli(*args, "--out", tmp_path / "adapter")
    assert (code, out) == (2, "")
    assert "identical where compared: there is no update. Check --model, or widen the filters." in err
    assert not (tmp_path / "adapter").exists()


def test_a_partial_adapter_is_exit_code_1_and_says_what_is_missing(cli, zoo, tmp_path):
    args = (*pair(zoo), "--profile", "portable")
    code, _, err = cli(*args, "--out", tmp_path / "adapter", "--dry-run")
    assert code == 1
    assert not (tmp_path / "adapter").exists(), "a dry run writes nothing"
    assert cli(*args, "--out", tmp_path / "adapter")[0] == 1
    assert (tmp_path / "adapter" / "adapter_config.json").exists()
    assert "Partial: 6 changed tensors" in err
    assert "a portable adapter holds the weights of linear layers only" in err
    code, _, err = cli(*args, "--include-regex", "q_proj", "--out", tmp_path / "part")
    assert code == 0, "what a filter leaves out was asked for"
    assert "WARNING: with the adapter the output is off by" in err, "but the output says that it matters"


def test_interrupted_updates_go_on_where_they_were(cli, zoo, monkeypatch):
    args = (*pair(zoo), "--json")
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
    assert cli(*args, "--out", tmp_path / "adapter")[0] == 2


@pytest.mark.browser
def test_the_page_of_updates_opens(cli, zoo, tmp_path, browser):
    assert cli(*pair(zoo), "--page", tmp_path)[0] == 0
    look_at(browser, tmp_path, figures=2, rows=16)


def test_the_page_of_updates_shows_what_was_measured(cli, zoo, tmp_path):
    code, out, err = cli(*pair(zoo, "gpt2"), "--page", tmp_path / "page", "--json")
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
    code, _, err = cli(*pair(zoo), "--page", tmp_path / "file")
    assert code == 2
    assert "Give a folder with room to write in." in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["updates", "--model", "{zoo}/llama"], "--base-model"),
        (["updates", "{pair}", "--rule", "magic"], "No rule 'magic'. Known: energy@SHARE"),
        (["updates", "{pair}", "--rule", "energy@1.5"], "1.5"),
        (
            ["updates", "{pair}", "--max-rank", "0"],
            "max_rank=0: an adapter has rank 1 at least. Option: --max-rank.",
        ),
        (["updates", "{pair}", "--budget", "10"], "parameters. Raise it."),
        (["updates", "{pair}", "--include-regex", "zzz"], "include_regex='zzz' matches no tensor"),
        (
            ["updates", "{pair}", "--out", "{zoo}"],
            "or remove it first. Option: --out.",
        ),
        (["updates", "{pair}", "--profile", "odd"], "'exact', 'portable'"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(refuses, zoo, args, message):
    given = []
    for arg in args:
        given += pair(zoo)[1:] if arg == "{pair}" else [arg.format(zoo=zoo)]
    refuses(*given, saying=message)


def test_an_unknown_device_is_refused_before_anything_is_read(cli, tmp_path):
    code, _, err = cli("updates", "--base-model", tmp_path, "--model", tmp_path, "--device", "abacus")
    assert code == 2
    assert "Unknown device 'abacus'" in err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SAVED)
def test_updates_are_the_same_on_a_gpu(cli, zoo, name):
    rows, again = (
        json.loads(cli(*pair(zoo, name), "--json", "--device", device)[1])["tensors"]
        for device in ("cpu", "cuda")
    )
    for row, other in zip(rows, again, strict=True):
        for key in ("energy", "signal_rank"):
            assert other[key] == pytest.approx(row[key], rel=1e-3), (key, row)


def test_what_is_written_without_running_models_says_so(cli, zoo, tmp_path):
    code, out, _ = cli(*pair(zoo), "--out", tmp_path / "adapter", "--no-verify", "--top", 3)
    assert code == 0
    assert "Not verified." in out
    assert "the 3 largest of 16, --csv has all" in " ".join(out.split())
    with safe_open(tmp_path / "adapter" / "adapter_model.safetensors", "pt") as stored:
        numbers = sum(stored.get_tensor(name).numel() for name in stored.keys())  # noqa: SIM118
    said = re.search(r"The adapter has ([\d,]+) numbers in factors and ([\d,]+) kept whole", out)
    assert numbers == sum(int(part.replace(",", "")) for part in said.groups())


@pytest.fixture
def loras(zoo, tmp_path, monkeypatch):
    """Two LoRAs of rank 4 on the saved Llama, which they name as their base, in the working directory."""
    for seed, name in enumerate(("one", "two")):
        train(
            build("llama"), tmp_path / name, seed, r=4, lora_alpha=4, target_modules=["q_proj", "down_proj"]
        )
        change_config(tmp_path / name, base_model_name_or_path=str(zoo / "llama"))
    monkeypatch.chdir(tmp_path)


def test_a_lora_is_measured_on_the_base_that_it_names_and_written_at_a_lower_rank(cli, loras):
    code, out, _ = cli("updates", "--model", "one", "--rule", "rank=2", "--out", "lower", "--json")
    content = json.loads(out)
    assert code == 0
    assert content["summary"]["factors"]["most_rank"] == 4
    assert content["lora_config"]["r"] == 2
    assert 0 < content["adapter"]["logits_error"] < content["adapter"]["base_logits_error"]
    _, out, _ = cli("updates", "--model", "lower", "--json")
    assert json.loads(out)["summary"]["factors"]["most_rank"] == 2


def test_several_models_stand_side_by_side_and_add_up(cli, loras, tmp_path):
    two = ("updates", "--model", "one", "--model", "two")
    code, out, _ = cli(*two, "--csv", "table.csv", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["models"] == {"A": "one", "B": "two"}
    assert [row["matrices"] for row in found["fine_tunes"]] == [4, 4]
    assert -0.5 < found["cosines"]["A · B"] < 0.5
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 5
    _, shown, _ = cli(*two)
    assert "Fine-tunes side by side (energy@0.95)" in shown
    assert "Cosine of all updates, A · B" in shown
    _, out, _ = cli(*two, "--merge", "1,0.5", "--rule", "full", "--out", "sum", "--json")
    merged = json.loads(out)
    assert merged["summary"]["factors"]["most_rank"] == 8
    assert merged["adapter"]["logits_error"] < 1e-5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ("--model", "{zoo}/llama"),
            "does not name the model it was trained from: give it. Option: --base-model.",
        ),
        (
            ("--model", "one", "--model", "two", "--out", "x"),
            "give --merge with a weight for each, such as 1,1.",
        ),
        (("--model", "one", "--merge", "1"), "give --model more than once."),
        (("--model", "one", "--model", "two", "--merge", "1,x"), "give 2 numbers, one per model"),
    ],
)
def test_options_of_several_models_that_do_not_go_together_are_one_line(cli, loras, zoo, given, says):
    code, _, err = cli("updates", *(part.format(zoo=zoo) for part in given))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_a_model_that_does_not_run_here_is_one_line_with_the_way_out(cli, zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(fidelity, "fixed_batch", lambda model: {"nothing": torch.zeros(1)})
    line = (*pair(zoo), "--out", tmp_path / "out")
    code, _, err = cli(*line)
    assert code == 2
    assert "have the adapter written without running it. Option: --no-verify." in err
    assert not (tmp_path / "out").exists()
    assert cli(*line, "--no-verify")[0] == 0
