"""Measurements on a tiny encoder with planted updates, and one short run of the real model on real sentences."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rankscope.core.streams import stream
from rankscope.lab import Job, Scale
from rankscope.studies.real import assets, experiments, sentences
from rankscope.studies.real.measurement import EVALUATIONS, PARTS, examine, score, updates, with_update_rank
from rankscope.studies.real.sentences import Sentence, padded
from rankscope.studies.real.training import (
    Batch,
    Classifier,
    FineTune,
    Optimizer,
    fine_tune,
    shuffled,
)
from tests.command_line import call
from tests.studies.tidy import one_value
from tests.zoo import build


@pytest.fixture
def tiny():
    """A tiny classifier, its start, and a batch whose labels are its own answers after a planted update of rank 2."""
    encoder = build("minilm")
    start = {name: value.detach().clone() for name, value in encoder.named_parameters()}
    generator = stream(0, "planted")
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            if value.dim() == 2 and "embeddings" not in name:
                left, right = (torch.randn(side, 2, generator=generator) for side in value.shape)
                value.add_(0.3 * left @ right.T / value.shape[0] ** 0.5)
        encoder.embeddings.word_embeddings.weight[3] += 0.5
    head = nn.Linear(encoder.config.hidden_size, 2)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator))
        head.bias.zero_()
    classifier = Classifier(encoder, head).eval()
    tokens = torch.randint(0, 50, (64, 6), generator=generator)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    batch = Batch(inputs, torch.zeros(64, dtype=torch.long))
    with torch.no_grad():
        batch = batch._replace(labels=classifier(batch).argmax(-1))
    return classifier, start, batch


def test_truncation_goes_from_the_start_to_the_end(tiny):
    classifier, start, _ = tiny
    found = updates(classifier, start)
    end = dict(classifier.encoder.named_parameters())
    whole = dict(with_update_rank(classifier, start, found, 2).encoder.named_parameters())
    none = dict(with_update_rank(classifier, start, found, 0).encoder.named_parameters())
    one = dict(with_update_rank(classifier, start, found, 1).encoder.named_parameters())
    for name, value in end.items():
        torch.testing.assert_close(whole[name], value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(none[name], start[name] if value.dim() == 2 else value)
    name = "encoder.layer.1.attention.self.key.weight"
    left, values, right = torch.linalg.svd(end[name].detach() - start[name])
    torch.testing.assert_close(
        one[name].detach(), start[name] + values[0] * left[:, :1] @ right[:1], rtol=1e-4, atol=1e-5
    )
    assert found["embeddings.word_embeddings.weight"].rows.tolist() == [3]


def test_everything_is_measured_on_what_was_planted(tiny):
    classifier, start, batch = tiny
    calls = []
    outcome = examine(classifier, start, [batch], tick=lambda: calls.append(1))
    records = outcome.records
    assert one_value(records, "accuracy", "whole") == 1.0
    assert [one_value(records, "accuracy", "truncation", rank=rank) for rank in (2, 32)] == [1.0, 1.0]
    loss = one_value(records, "loss", "whole")
    assert one_value(records, "loss", "truncation", rank=2) == pytest.approx(loss, rel=1e-4)
    assert one_value(records, "accuracy", "truncation", rank=0) < 1.0
    assert one_value(records, "energy_rank", "energy rank", share=0.9, part="all", layer="all") <= 2
    assert one_value(records, "signal_rank", "update", stored="float32") == 2
    assert one_value(records, "signal_rank", "update", stored="bfloat16") == 2
    assert one_value(records, "gap", "update", stored="float32") > 1000
    assert all(record["classes"] == 2 for record in records)
    assert (
        outcome.arrays["signal_rank"].tolist()
        == [[2.0] * len(PARTS)] * classifier.encoder.config.num_hidden_layers
    )
    moved = outcome.arrays["neurons/update"]
    up = dict(classifier.encoder.named_parameters())["encoder.layer.1.intermediate.dense.weight"].detach()
    torch.testing.assert_close(
        moved[1], (up - start["encoder.layer.1.intermediate.dense.weight"]).norm(dim=1)
    )
    assert len(calls) == EVALUATIONS


def test_ranks_are_told_by_part_and_of_the_last_layer(tiny):
    classifier, start, batch = tiny
    name = "encoder.layer.1.attention.self.value.weight"
    generator = stream(0, "more")
    with torch.no_grad():
        classifier.encoder.get_parameter(name).add_(torch.randn(start[name].shape, generator=generator))
    outcome = examine(classifier, start, [batch])
    first, last = outcome.arrays["energy@0.90"][:, PARTS.index("V")].tolist()
    assert first <= 2 < last
    ranks = {
        (record["part"], record["layer"]): record["energy_rank"]
        for record in outcome.records
        if record["measurement"] == "energy rank" and record["share"] == 0.9
    }
    assert ranks["V", "last"] == last
    assert ranks["V", "all"] == (first + last) / 2
    assert ranks["O", "last"] <= 2


def test_scores_are_means_over_all_sentences(tiny):
    classifier, _, batch = tiny
    halves = [
        Batch({name: value[part] for name, value in batch.inputs.items()}, batch.labels[part])
        for part in (slice(40), slice(40, None))
    ]
    with torch.no_grad():
        loss = nn.functional.cross_entropy(classifier(batch), 1 - batch.labels)
    wrong = [half._replace(labels=1 - half.labels) for half in halves]
    assert score(classifier, halves)[0] == 1.0
    assert score(classifier, wrong) == (0.0, pytest.approx(float(loss), rel=1e-5))


def test_padding_changes_nothing(tiny):
    classifier, _, _ = tiny
    short, long = Sentence([5, 6, 7], 1), Sentence([8, 9, 10, 11, 12, 13], 0)
    with torch.no_grad():
        alone, beside = classifier(padded([short], "cpu")), classifier(padded([short, long], "cpu"))
    torch.testing.assert_close(alone[0], beside[0], rtol=1e-4, atol=1e-5)


def test_groups_go_through_all_items_in_new_orders():
    data = shuffled(range(10), 4, 0)
    seen = [item for _ in range(5) for item in next(data)]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]
    assert seen[:4] == next(shuffled(range(10), 4, 0))
    assert seen[:4] != next(shuffled(range(10), 4, 0, "pretraining"))


@pytest.mark.parametrize(("optimizer", "rate"), [(Optimizer.SGD, 0.5), (Optimizer.ADAMW, 1e-3)])
def test_training_lowers_the_loss_and_moves_every_matrix(tiny, optimizer, rate):
    classifier, _, batch = tiny
    before = {name: value.detach().clone() for name, value in classifier.named_parameters()}
    turned = batch._replace(labels=1 - batch.labels)
    steps = FineTune(optimizer=optimizer, learning_rate=rate, steps=12, batch=64)
    losses = fine_tune(classifier, iter([turned] * 12), steps)
    assert losses[-1] < losses[0]
    still = [
        name
        for name, value in classifier.named_parameters()
        if torch.equal(value, before[name]) and "pooler" not in name
    ]
    assert still == []


needs_real = pytest.mark.skipif(
    assets.missing() is not None, reason=f"nothing real was run: {assets.missing()}"
)


@pytest.mark.real
@needs_real
def test_the_real_sentences_are_there_and_split_by_seed():
    task = experiments(Scale.QUICK)[0].task
    assert len(assets.reviews()) == 10_605
    train, test = sentences.split(task, 0)
    assert len(test) == 192
    assert len(train) > 768
    assert 0.4 < sum(sentence.label for sentence in train) / len(train) < 0.6
    assert max(len(sentence.tokens) for sentence in (*train, *test)) == task.longest
    assert not {tuple(sentence.tokens) for sentence in test} & {tuple(sentence.tokens) for sentence in train}
    assert sentences.split(task, 0)[1] == test
    assert sentences.split(task, 1)[1] != test


@pytest.mark.real
@needs_real
def test_the_real_experiment_runs_and_repeats_itself(tmp_path):
    experiment = experiments(Scale.SMOKE)[0]
    cell = experiment.cells()[-1]
    done = []
    (first,) = experiment.trainer.run([cell], Job(tick=lambda: done.append(1)))
    assert len(done) == experiment.trainer.steps(cell)
    assert 0 <= one_value(first.records, "accuracy", "whole") <= 1
    assert one_value(first.records, "signal_rank", "update", stored="float32") > 2
    assert first.arrays["energy@0.90"].shape == (1, len(PARTS))
    (again,) = experiment.trainer.run([cell], Job())
    assert again.records == first.records


@pytest.mark.real
@needs_real
def test_updates_and_neurons_of_the_real_model(monkeypatch, capsys, tmp_path):
    folder = assets.model_folder()
    assert isinstance(folder, Path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    state = load_file(folder / "model.safetensors")
    name = "encoder.layer.3.attention.self.query.weight"
    generator = stream(0, "planted")
    left, right = (torch.randn(384, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    state[name] = (state[name].double() + 0.02 * left @ right.T).float()
    (tmp_path / "tuned").mkdir()
    save_file(state, tmp_path / "tuned" / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(folder / "config.json", tmp_path / "tuned")
    code, out, _ = call(
        monkeypatch, capsys, "updates", "--base-model", folder, "--model", tmp_path / "tuned", "--json"
    )
    assert code == 0
    (moved,) = [row for row in json.loads(out)["tensors"] if row["energy"]]
    assert (moved["name"], moved["signal_rank"], moved["energy@0.99"]) == (name, 2, 2)
    code, out, _ = call(monkeypatch, capsys, "neurons", folder, "--json")
    assert code == 0
    found = json.loads(out)["summary"]
    assert (found["neurons"], found["heads"]) == (9216, 72)
    assert found["below_knee"] == pytest.approx(0.91, abs=0.01)
