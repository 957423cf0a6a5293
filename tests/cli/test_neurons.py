"""neurons on the command line, over tiny models in folders."""

import json

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.browser import look_at
from tests.zoo import SAVED, build


@pytest.mark.parametrize("name", SAVED)
def test_neurons_prints_magnitudes_and_the_knee(cli, zoo, tmp_path, name):
    code, out, _ = cli("neurons", zoo / name, "--csv", tmp_path / "neurons.csv")
    assert code == 0
    assert "Magnitudes of neurons, by block" in out
    assert "below the knee" in out
    assert "Give --data to see the loss as neurons go." in out
    neurons = pd.read_csv(tmp_path / "neurons.csv")
    assert f"{len(neurons)} neurons in" in out


@pytest.mark.parametrize("data", ["ids.json", "ids.safetensors"])
def test_neurons_prunes_along_curves_and_writes_a_smaller_model(cli, zoo, tmp_path, data):
    args = ("neurons", zoo / "llama", "--data", zoo / data, "--prune", 0.4, "--prune-heads", 0.5)
    code, out, _ = cli(*args, "--out", tmp_path / "small", "--json")
    assert code == 0
    content = json.loads(out)
    assert set(content) == {"model", "summary", "blocks", "heads", "curves", "pruned"}
    assert {row["order"] for row in content["curves"]} == {"smallest", "largest", "random"}
    assert len(content["curves"]) == 30
    smaller = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert smaller.config.intermediate_size == 32
    assert smaller.config.num_key_value_heads == 1
    before, after = content["pruned"]["parameters"]
    assert after == sum(value.numel() for value in smaller.parameters()) < before
    assert set(content["pruned"]) == {"path", "bytes", "parameters", "seconds", "loss"}


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
    args = ("neurons", tmp_path / "model", "--data", text, "--prune", 0.4, "--out", tmp_path / "small")
    code, out, _ = cli(*args)
    assert code == 0
    assert "Loss on 64 tokens" in out, "two rows of the model's 32 positions, the last 6 of 70 left out"
    assert (tmp_path / "small" / "tokenizer.json").exists()
    assert "seconds per batch" in out


@pytest.mark.browser
def test_the_page_of_neurons_opens(cli, zoo, tmp_path, browser):
    assert cli("neurons", zoo / "mixtral", "--data", zoo / "ids.json", "--page", tmp_path / "page")[0] == 0
    look_at(browser, tmp_path / "page", figures=2, rows=6)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["neurons", "{zoo}/llama", "--prune", "0.4"], "say where with --out."),
        (["neurons", "{zoo}/llama", "--prune", "1.5", "--out", "x"], "neurons=1.5: a share to prune"),
        (["neurons", "{zoo}/llama", "--prune", "0", "--out", "x"], "Nothing to prune at these shares"),
        (["neurons", "{zoo}/llama", "--data", "no.json"], "no.json: cannot be read (No such file"),
        (["neurons", "{zoo}/llama", "--data", "no.txt"], "no.txt: cannot be read (No such file"),
        (
            ["neurons", "{zoo}/llama", "--data", "{zoo}/llama/config.json"],
            "no lists of token ids. Accepted: plain",
        ),
        (["neurons", "{zoo}/llama", "--data", "{zoo}/llama/model.safetensors"], "the same number of rows"),
        (
            ["neurons", "{zoo}/llama", "--data", "{files}/text.txt"],
            "holds no tokenizer that loads. Give token ids instead.",
        ),
        (
            ["neurons", "{zoo}/llama", "--data", "{files}/large.json"],
            "token id 999 is not in 0 … 49, the vocabulary of",
        ),
        (
            ["neurons", "{zoo}/llama", "--data", "{files}/long.json"],
            "rows of 33 tokens, and the model takes 32. Cut them.",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(refuses, zoo, tmp_path, args, message):
    files = {"text.txt": "some words", "large.json": "[[1, 999]]", "long.json": json.dumps([[1] * 33])}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    refuses(*(arg.format(zoo=zoo, files=tmp_path) for arg in args), saying=message)


def test_an_unknown_device_is_refused_before_anything_is_read(cli, tmp_path):
    code, _, err = cli("neurons", tmp_path, "--device", "abacus")
    assert code == 2
    assert "Unknown device 'abacus'" in err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SAVED)
def test_neurons_are_the_same_on_a_gpu(cli, zoo, tmp_path, name):
    def seen(device):
        data = ("--data", zoo / "ids.json", "--prune", 0.4, "--out", tmp_path / device)
        found = json.loads(cli("neurons", zoo / name, *data, "--json", "--device", device)[1])
        return found["blocks"] + found["curves"], found["pruned"]["loss"]

    (rows, loss), (again, loss_again) = seen("cpu"), seen("cuda")
    assert loss_again == pytest.approx(loss, rel=1e-3)
    for row, other in zip(rows, again, strict=True):
        for key in row.keys() & {"median", "loss"}:
            assert other[key] == pytest.approx(row[key], rel=1e-3), (key, row)
