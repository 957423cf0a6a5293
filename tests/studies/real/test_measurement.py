"""Measurements on a tiny encoder with planted updates, and one short run of the real model on real sentences."""

import copy
import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import product
from math import isnan
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rankscope.core.streams import stream
from rankscope.lab import Job, Scale
from rankscope.studies.real import assets, experiments, sentences
from rankscope.studies.real.measurement import (
    PARTS,
    RANKS,
    Tuned,
    evaluations,
    examine,
    score,
    shared_directions,
    updates,
    with_update_rank,
)
from rankscope.studies.real.sentences import MiniLm, Reviews, Sentence, padded
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
    """A tiny classifier with a planted update of rank 2, its start, and a batch whose labels are its own answers."""
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
    classifier, start, batch = tiny
    half = Tuned(classifier, start, [batch], [batch])
    found = updates(half)
    end = dict(classifier.encoder.named_parameters())
    none, one, whole = (
        dict(with_update_rank(half, found, rank).encoder.named_parameters()) for rank in (0, 1, 2)
    )
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
    wrong = batch._replace(labels=1 - batch.labels)
    halves = [Tuned(classifier, start, [batch], [batch]), Tuned(classifier, start, [batch], [wrong])]
    calls = []
    records = examine(halves, permuted=False, tick=lambda: calls.append(1))
    assert len(calls) == 2 * evaluations(permuted=False)
    for on in ("seen", "held out"):
        assert one_value(records, "accuracy", "whole", half=0, on=on) == 1.0
        assert one_value(records, "accuracy", "truncation", half=0, on=on, rank=2) == 1.0
        assert one_value(records, "accuracy", "truncation", half=0, on=on, rank=0) < 1.0
        assert one_value(records, "needed_rank", "needed rank", half=0, on=on) in (1, 2)
    assert one_value(records, "accuracy", "whole", half=1, on="held out") == 0.0
    assert isnan(one_value(records, "needed_rank", "needed rank", half=1, on="held out")), "nothing gained"
    loss = one_value(records, "loss", "whole", half=0, on="seen")
    for order, fraction in product(("smallest", "random", "largest"), (0.2, 0.8)):
        assert one_value(records, "loss", "pruning", half=0, order=order, fraction=fraction) > loss
    assert [row for row in records if row["measurement"] == "truncation" and row["rank"] not in RANKS] == []


def test_permuted_labels_are_measured_on_what_was_seen_alone(tiny):
    classifier, start, batch = tiny
    calls = []
    half = Tuned(classifier, start, [batch], [batch])
    records = examine([half, half], permuted=True, tick=lambda: calls.append(1))
    assert len(calls) == 2 * evaluations(permuted=True)
    assert {row["measurement"] for row in records} == {
        "whole",
        "truncation",
        "needed rank",
        "shared",
        "direction",
    }
    assert {row["on"] for row in records if "on" in row} == {"seen"}


def test_directions_that_recur_in_the_other_half_are_counted_by_part(tiny):
    classifier, start, batch = tiny
    other = copy.deepcopy(classifier)
    name = "encoder.layer.1.attention.self.value.weight"
    generator = stream(0, "other half")
    with torch.no_grad():
        planted = classifier.encoder.get_parameter(name) - start[name]
        reads = torch.linalg.svd(planted)[2][:2]
        writes = torch.randn(planted.shape[0], 2, generator=generator)
        writes -= planted @ torch.linalg.pinv(planted) @ writes
        other.encoder.get_parameter(name).copy_(start[name] + writes @ reads)
    halves = [Tuned(model, start, [batch], [batch]) for model in (classifier, other)]
    shared = {
        row["part"]: row["shared"]
        for row in shared_directions(halves, [updates(half) for half in halves])
        if row["measurement"] == "shared"
    }
    rounding = shared["Q"] - 2
    assert 0 <= rounding < 14, "directions beyond the planted ones are rounding, the same in both"
    both = examine([halves[0]] * 2, permuted=True)
    assert one_value(both, "shared", "shared", part="V") > shared["V"] + 0.9, (
        "one of two layers writes elsewhere"
    )


def test_scores_are_means_over_all_sentences(tiny):
    classifier, _, batch = tiny
    halves = [
        Batch({name: value[part] for name, value in batch.inputs.items()}, batch.labels[part])
        for part in (slice(40), slice(40, None))
    ]
    with torch.no_grad():
        loss = nn.functional.cross_entropy(classifier(batch), 1 - batch.labels)
    wrong = [half._replace(labels=1 - half.labels) for half in halves]
    assert score(classifier, halves)[1] == 1.0
    found, accuracy = score(classifier, wrong)
    assert (float(found.mean()), accuracy) == (pytest.approx(float(loss), rel=1e-5), 0.0)
    assert found.shape == (64,)


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
def test_the_real_sentences_are_split_by_seed_and_labelled_by_rating():
    _, experiment = experiments(Scale.PAPER)
    assert len(assets.reviews()) == 10_605
    for classes in (2, 8):
        task = experiment.task.replace(classes=classes)
        test, train = sentences.split(task, 0)
        assert (len(test), len(train)) == (task.test, 2 * task.half)
        counts = Counter(sentence.label for sentence in train)
        assert set(counts) == set(range(classes))
        assert max(counts.values()) < 1.1 * min(counts.values())
        assert not {tuple(one.tokens) for one in test} & {tuple(one.tokens) for one in train}
        assert sentences.split(task, 0)[0] == test
        assert sentences.split(task, 1)[0] != test


@pytest.mark.real
@needs_real
def test_the_real_experiment_runs_and_repeats_itself(tmp_path):
    _, experiment = experiments(Scale.PAPER)
    small = Reviews(longest=8, test=16, half=16), MiniLm(layers=1), FineTune(steps=2, batch=8)
    parts = dict(zip(("task", "model", "train"), small, strict=True))
    cell = replace(experiment, **parts).cells()[-1]
    assert cell.task.permuted, "what takes the shortest"
    done = []
    (first,) = experiment.trainer.run([cell], Job(tick=lambda: done.append(1)))
    assert len(done) == experiment.trainer.steps(cell)
    assert 0 <= one_value(first.records, "accuracy", "whole", half=0, on="seen") <= 1
    assert {row["part"] for row in first.records if row["measurement"] == "shared"} == set(PARTS)
    (again,) = experiment.trainer.run([cell], Job())
    assert repr(again.records) == repr(first.records)


@pytest.mark.real
@needs_real
def test_the_sentences_are_left_to_scale_paper():
    _, experiment = experiments(Scale.QUICK)
    assert experiment.not_run == (
        "li2024/real is not run: it takes a GPU: run it at scale paper on cuda, or put tables of it in results/."
    )
    assert [cell.key() for cell in experiment.cells()] == [
        cell.key() for cell in experiments(Scale.PAPER)[1].cells()
    ]


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
