"""Updates between two checkpoints: every tensor has a row, and the ranks are those that were planted."""

from __future__ import annotations

import copy

import pandas as pd
import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.noise import rounding_noise
from rankscope.scope import journal, updates
from rankscope.scope.rules import adapter_parameters, compare_rules, energy_curve, rank_map, ranks_by
from rankscope.scope.views import measure_updates
from tests.zoo import SPECIMENS, build


def tuned_from(base: torch.nn.Module, rank: int = 2, size: float = 0.5, everything: bool = False):
    """A copy of `base` whose matrices moved by an update of `rank`; with `everything`, all tensors moved."""
    model = copy.deepcopy(base)
    generator = stream(7, "tuned")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                rows, columns = parameter.shape
                left = torch.randn(rows, rank, generator=generator)
                right = torch.randn(rank, columns, generator=generator)
                parameter.add_((size * left @ right / (rows * columns) ** 0.5).to(parameter))
            elif everything:
                parameter.add_((0.1 * torch.randn(parameter.shape, generator=generator)).to(parameter))
    return model


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_tensor_has_a_row_from_disk_and_from_memory(name, tmp_path):
    base = build(name)
    tuned = tuned_from(base, everything=True)
    base.save_pretrained(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "tuned")
    disk = measure_updates(tmp_path / "base", tmp_path / "tuned")
    live = measure_updates(base, tuned)
    assert set(disk.table["status"]) == {"changed"}
    assert set(live.table["status"]) <= {"changed", "tied"}
    assert disk.summary["energy"] == pytest.approx(live.summary["energy"], rel=1e-6)
    matrices = disk.table.dropna(subset=["effective_rank"])
    assert set(matrices["name"]) == set(disk.spectra)


def test_measuring_leaves_the_models_alone():
    base, tuned = build("llama"), tuned_from(build("llama"))
    before = {name: value.clone() for name, value in tuned.state_dict().items()}
    measure_updates(base, tuned)
    assert all(torch.equal(value, before[name]) for name, value in tuned.state_dict().items())


def test_a_planted_rank_is_found_in_bfloat16(tmp_path):
    base = build("llama", hidden_size=64, intermediate_size=128, head_dim=16)
    name = "model.layers.1.mlp.up_proj.weight"
    tuned = copy.deepcopy(base)
    weight = dict(tuned.named_parameters())[name]
    noise = rounding_noise(weight.detach(), torch.bfloat16)
    generator = stream(0, "planted")
    left = torch.linalg.qr(torch.randn(128, 3, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(64, 3, generator=generator)).Q
    weight.data += 3 * (noise + noise).edge() * left @ right.T
    base.bfloat16().save_pretrained(tmp_path / "base")
    tuned.bfloat16().save_pretrained(tmp_path / "tuned")
    scope = measure_updates(tmp_path / "base", tmp_path / "tuned")
    changed = scope.table[scope.table["status"] == "changed"]
    assert changed["name"].tolist() == [name]
    assert changed["signal_rank"].tolist() == [3]
    assert scope.summary["status"] == {"identical": 20, "changed": 1}


def test_ranks_are_those_of_the_difference():
    base = build("llama")
    tuned = tuned_from(base, rank=3)
    scope = measure_updates(base, tuned)
    name = "model.layers.0.self_attn.q_proj.weight"
    delta = tuned.state_dict()[name].double() - base.state_dict()[name].double()
    row = scope.table.set_index("name").loc[name]
    assert row["energy"] == pytest.approx(float(delta.square().sum()), rel=1e-5)
    assert row["energy@0.99"] <= 3
    torch.testing.assert_close(
        scope.spectra[name].double(), torch.linalg.svdvals(delta), rtol=1e-4, atol=1e-6
    )


def test_identical_models_are_said_to_be():
    scope = measure_updates(build("gpt2"), build("gpt2"))
    assert scope.summary["identical"]
    assert set(scope.table["status"]) == {"identical", "tied"}
    assert scope.spectra == {}


def test_filters_are_by_name_and_a_filter_that_fits_nothing_is_refused():
    base, tuned = build("llama"), tuned_from(build("llama"))
    scope = measure_updates(base, tuned, include_regex=r"self_attn", exclude_regex=r"o_proj")
    changed = scope.table[scope.table["status"] == "changed"]["name"]
    assert len(changed) == 6
    assert not changed.str.contains("o_proj|mlp").any()
    with pytest.raises(InputError, match="include_regex='zzz' matches no tensor"):
        measure_updates(base, tuned, include_regex="zzz")
    with pytest.raises(InputError, match="not a regular expression"):
        measure_updates(base, tuned, exclude_regex="(")


def test_tied_embeddings_are_counted_once():
    base = build("gemma")
    scope = measure_updates(base, tuned_from(base))
    assert scope.table.set_index("name").loc["lm_head.weight", "status"] == "tied"
    assert scope.summary["status"]["tied"] == 1


def test_an_untied_head_is_compared_with_the_embedding_it_came_from(tmp_path):
    base = build("llama", tie_word_embeddings=True)
    tuned = build("llama", tie_word_embeddings=False)
    tuned.load_state_dict(base.state_dict())
    tuned.lm_head.weight.data[3] += 1
    base.save_pretrained(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "tuned")
    table = measure_updates(tmp_path / "base", tmp_path / "tuned").table.set_index("name")
    assert table.loc["lm_head.weight", "energy"] == pytest.approx(32, rel=1e-5)
    assert table.loc["model.embed_tokens.weight", "status"] == "identical"


def test_a_resized_vocabulary_is_measured_on_the_rows_both_have():
    base = build("llama")
    tuned = tuned_from(base)
    tuned.resize_token_embeddings(53)
    table = measure_updates(base, tuned).table.set_index("name")
    assert table.loc["model.embed_tokens.weight", "status"] == "resized"
    expected = (tuned.lm_head.weight[:50] - base.lm_head.weight).double().square().sum()
    assert table.loc["lm_head.weight", "energy"] == pytest.approx(float(expected), rel=1e-5)


def test_added_and_removed_tensors_are_named():
    base, tuned = build("llama"), build("qwen3", head_dim=8)
    table = measure_updates(base, tuned).table.set_index("name")
    assert table.loc["model.layers.0.self_attn.q_norm.weight", "status"] == "added"
    table = measure_updates(tuned, base).table.set_index("name")
    assert table.loc["model.layers.0.self_attn.q_norm.weight", "status"] == "removed"


def test_two_different_models_are_refused():
    with pytest.raises(InputError, match="these are not two states of one model"):
        measure_updates(build("llama"), build("llama", hidden_size=64))
    with pytest.raises(InputError, match="have no tensor in common: these are not two states of one model"):
        measure_updates(build("llama"), build("vit"))


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    base = build("llama")
    base.save_pretrained(tmp_path / "base")
    tuned_from(base).save_pretrained(tmp_path / "tuned")
    calls: list[str] = []
    measure = updates._measure

    def watched(*given):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(given[2].name)
        return measure(*given)

    monkeypatch.setattr(updates, "_measure", watched)
    run = lambda: measure_updates(tmp_path / "base", tmp_path / "tuned", resume_path=tmp_path / "kept")  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        run()
    next(iter((tmp_path / "kept").glob("*.json"))).write_text('{"key": ')
    monkeypatch.setattr(updates, "_measure", lambda *given: calls.append(given[2].name) or measure(*given))
    resumed = run()
    assert len(calls) == 5 + 21 - 4
    fresh = measure_updates(tmp_path / "base", tmp_path / "tuned")
    pd.testing.assert_frame_equal(resumed.table, fresh.table)
    tuned_from(base, rank=5).save_pretrained(tmp_path / "tuned")
    with pytest.raises(InputError, match="holds the measurements of other models"):
        run()


def test_resuming_needs_models_on_disk(tmp_path):
    with pytest.raises(InputError, match="resume_path needs models on disk"):
        measure_updates(build("llama"), build("llama"), resume_path=tmp_path)


def test_a_journal_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    base = build("llama")
    base.save_pretrained(tmp_path / "base")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "write_atomic", full)
    with pytest.raises(InputError, match=r"No space left on device\. Give a folder with room"):
        measure_updates(tmp_path / "base", tmp_path / "base", resume_path=tmp_path / "kept")


def test_progress_is_told_of_every_tensor():
    seen: list[tuple[str, int, int]] = []
    measure_updates(build("llama"), build("llama"), progress=lambda *step: seen.append(step))
    assert [step[1] for step in seen] == list(range(1, 22))
    assert {step[2] for step in seen} == {21}


def test_rules_stand_side_by_side():
    base = build("llama")
    scope = measure_updates(base, tuned_from(base, rank=4))
    smallest = adapter_parameters(scope, 1)
    table = compare_rules(scope, budget=3 * smallest).set_index("name")
    assert (table["energy@0.90"] <= table["energy@0.95"]).all()
    assert (table["energy@0.95"] <= table["energy@0.99"]).all()
    assert set(table[f"budget={3 * smallest}"]) == {3}
    assert set(ranks_by(scope, "rank=2").values()) == {2}
    assert max(ranks_by(scope, "full", max_rank=7).values()) == 7
    with pytest.raises(InputError, match=r"rank 1 on every matrix takes \d+ parameters"):
        ranks_by(scope, "budget=10")


@pytest.mark.parametrize("rule", ["energy", "energy@x", "signal@3", "rank=0", "rank=-1", "none", "budget=x"])
def test_an_unknown_rule_lists_the_known_ones(rule):
    scope = measure_updates(build("llama"), build("llama"))
    with pytest.raises(InputError, match=f"No rule '{rule}'. Known: energy@SHARE"):
        ranks_by(scope, rule)


def test_ranks_by_layer_and_part():
    ranks = {
        "m.layers.0.a.q_proj.weight": 3,
        "m.layers.1.a.q_proj.weight": 4,
        "m.layers.1.b.down.weight": 5,
        "head": 7,
    }
    found = rank_map(ranks).set_index("layer")
    assert found.columns.tolist() == ["q_proj", "down"]
    assert found.loc["m.layers.1"].tolist() == [4, 5]
    assert found.loc["m.layers.0", "q_proj"] == 3
    twice = rank_map({"h.0.attn.c_proj.weight": 1, "h.0.mlp.c_proj.weight": 2})
    assert twice.columns.tolist() == ["layer", "attn.c_proj", "mlp.c_proj"]


def test_layers_of_a_table_of_ranks_rise():
    ranks = {f"h.{layer}.{part}.weight": layer for layer in (10, 2, 0) for part in ("q", "k")}
    assert rank_map(ranks)["layer"].tolist() == ["h.0", "h.2", "h.10"]


def test_the_curve_rises_to_one():
    base = build("llama")
    curve = energy_curve(measure_updates(base, tuned_from(base, rank=4)))
    assert curve["kept_energy"].is_monotonic_increasing
    assert curve["parameters"].is_monotonic_increasing
    assert curve["kept_energy"].iloc[-1] == pytest.approx(1)
    assert curve.set_index("rank").loc[4, "kept_energy"] > 0.999
