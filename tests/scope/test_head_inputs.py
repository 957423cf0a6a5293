"""What heads read: covariances and QK on them against dense matrices, padding, cross attention, the command."""

import json

import pytest
import torch

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.linalg.spectrum import effective_rank
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_inputs import Covariance, measure_inputs, with_inputs
from rankscope.scope.heads import measure_heads, products
from tests.zoo import build, inputs

QUERIES = {
    "gpt2": "transformer.h.{}.attn.c_attn",
    "llama": "model.layers.{}.self_attn.q_proj",
}


def batches(name):
    return [inputs(name), inputs(name, seed=1)]


def rows_read(folder, name, layer):
    """Everything that the projection of queries was given."""
    model, seen = load_model(open_source(folder)), []
    model.get_submodule(QUERIES[name].format(layer)).register_forward_pre_hook(
        lambda _, given: seen.append(given[0].flatten(0, -2))
    )
    with torch.no_grad():
        for batch in batches(name):
            model(**batch)
    return torch.cat(seen).double()


def test_a_covariance_of_parts_is_that_of_the_whole():
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)) + 4
    found = Covariance(6, torch.device("cpu"))
    for part in rows.split(13):
        found.see(part)
    torch.testing.assert_close(found.value(), torch.cov(rows.double().T, correction=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", QUERIES)
def test_ranks_and_dimensions_are_those_of_dense_matrices(zoo, name):
    table = measure_inputs(zoo / name, batches(name))
    block = open_checkpoint(zoo / name).attention[1]
    values, vectors = torch.linalg.eigh(torch.cov(rows_read(zoo / name, name, 1).T, correction=0))
    values = values.clamp_min(0)
    own = table[table["layer"] == 1]
    assert own["input_dimension"].tolist() == pytest.approx(
        [float(values.sum() ** 2 / values.square().sum())] * block.heads, rel=1e-5
    )
    root = (vectors * values.sqrt()) @ vectors.T
    qk, _ = products(block, block.load())
    for head, found in enumerate(own["qk_rank_on_data"]):
        dense = root @ (qk.left[head] @ qk.right[head]).double() @ root
        assert found == pytest.approx(
            float(effective_rank(torch.linalg.svdvals(dense)[: block.head_dim])), rel=1e-3
        )


def test_padding_is_not_read(zoo):
    (given, _) = batches("gpt2")
    ids = given["input_ids"]
    padded = {
        "input_ids": torch.cat([ids, torch.zeros(len(ids), 3, dtype=ids.dtype)], 1),
        "attention_mask": torch.cat([torch.ones_like(ids), torch.zeros(len(ids), 3, dtype=ids.dtype)], 1),
    }
    plain, masked = (measure_inputs(zoo / "gpt2", [one]) for one in ({"input_ids": ids}, padded))
    assert masked["input_dimension"].tolist() == pytest.approx(plain["input_dimension"].tolist(), rel=1e-4)


def test_across_stacks_queries_are_made_from_other_rows_than_keys():
    table = measure_inputs(build("whisper"), batches("whisper"))
    apart = (table["input_dimension"] - table["query_dimension"]).abs() > 1e-3
    crossing = table["stack"].str.contains("cross")
    assert crossing.any()
    assert apart.equals(crossing)


def test_the_command_shows_what_heads_read(cli, refuses, zoo, tmp_path):
    given = (zoo / "gpt2", "--data", zoo / "ids.json")
    code, out, _ = cli("heads", *given, "--page", tmp_path / "page")
    assert code == 0
    assert "dimensions of the data (participation ratio); on it QK has an effective rank of" in out
    page = (tmp_path / "page" / "index.html").read_text()
    assert (
        "Does a head&#39;s rank follow the dimension of what it reads?" in page
        or "Does a head's rank follow" in page
    )
    shown = json.loads(cli("heads", *given, "--json")[1])
    table = measure_inputs(
        zoo / "gpt2", [{"input_ids": torch.tensor(json.loads((zoo / "ids.json").read_text()))}]
    )
    assert [row["input_dimension"] for row in shown["heads"]] == pytest.approx(
        table["input_dimension"].tolist(), rel=1e-4
    )
    assert set(shown["summary"]["follows_inputs"]) == {"qk_effective_rank", "qk_rank_on_data"}
    refuses("heads", *given, "--map", "gpt2", saying="--map reads weights but cannot run a model on --data")


def test_the_correlation_is_over_layers(zoo):
    scope = measure_heads(zoo / "gpt2")
    places = scope.table[["stack", "layer", "head"]]
    made = places.assign(
        input_dimension=10.0 + places["layer"], query_dimension=1.0, qk_rank_on_data=9.0 - places["layer"]
    )
    found = with_inputs(scope, made).summary["follows_inputs"]
    assert (
        found["qk_rank_on_data"] is None if places["layer"].nunique() < 3 else found["qk_rank_on_data"] == -1
    )
