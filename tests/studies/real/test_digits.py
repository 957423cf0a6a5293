"""The digits: which images there are, what is learned first and what after, and one short run of the experiment."""

import pandas as pd
import pytest
import torch

from rankscope.figures.printed import save_static
from rankscope.lab import Job, Scale, Store, run
from rankscope.lab.paper import Results
from rankscope.lab.runner import schedule
from rankscope.lab.tidy import rows_of
from rankscope.studies.real import assets, digits, experiments, figures
from rankscope.studies.real.digits import Digits, SmallVit
from rankscope.studies.real.measurement import Tuned, as_matrix, layer_matrices, score, updates
from rankscope.studies.real.training import FineTune, Optimizer, fine_tune

pytestmark = pytest.mark.skipif(
    assets.missing_digits() is not None, reason=f"no digits: {assets.missing_digits()}"
)

TINY = SmallVit(dim=16, layers=2, heads=2, hidden=24)


def trial(classes=2, pretraining=0, seed=0, half=0, kinds=8, permuted=False, **train):
    given = FineTune(**{"steps": 1, "batch": 32, "pretraining": pretraining, **train})
    task = Digits(test=100, half=120, kinds=kinds, classes=classes, permuted=permuted)
    return digits.prepare(task, TINY, given, seed, half, "cpu")


def pixels(batches):
    return {tuple(image.flatten().tolist()) for batch in batches for image in batch.inputs["pixel_values"]}


def test_images_are_split_by_seed_and_labelled_by_the_lowest_bits():
    by_count = {classes: trial(classes).test[0] for classes in (2, 4, 8)}
    whole = by_count[8].labels
    assert whole.unique().tolist() == list(range(8))
    for classes, batch in by_count.items():
        assert torch.equal(batch.labels, whole % classes)
        assert torch.equal(batch.inputs["pixel_values"], by_count[2].inputs["pixel_values"])
    images = by_count[2].inputs["pixel_values"]
    assert images.shape == (100, 1, 8, 8)
    assert (images.min(), images.max()) == (-1, 1)
    assert not torch.equal(trial(seed=1).test[0].inputs["pixel_values"], images)


@pytest.mark.parametrize("kinds", [2, 8])
def test_no_image_is_in_two_of_the_halves_and_what_is_held_out(kinds):
    one, other = (trial(kinds=kinds, half=half) for half in (0, 1))
    sets = [pixels(one.seen), pixels(other.seen), pixels(one.test)]
    assert [len(images) for images in sets] == [120, 120, 100]
    assert len(set.union(*sets)) == 340
    assert pixels(other.test) == sets[2]
    assert pixels([next(one.batches)]) < sets[0]
    assert set(trial(kinds=kinds, classes=8).seen[0].labels.tolist()) == set(range(kinds))


def test_permuted_labels_are_as_many_of_each_class_and_only_where_is_trained():
    true, permuted = ([trial(8, half=half, permuted=given) for half in (0, 1)] for given in (False, True))
    assert torch.equal(true[0].test[0].labels, permuted[0].test[0].labels)
    for one, other in zip(true, permuted, strict=True):
        assert pixels(one.seen) == pixels(other.seen)
        assert 0 < (one.seen[0].labels == other.seen[0].labels).double().mean() < 0.3
    both = [torch.cat([half.seen[0].labels for half in halves]).bincount() for halves in (true, permuted)]
    assert torch.equal(*both)


def test_pretraining_sees_nothing_that_is_held_out(monkeypatch):
    seen = []
    real = digits._batches
    monkeypatch.setattr(digits, "_batches", lambda images, *rest: seen.append(images) or real(images, *rest))
    held_out = set.union(*(pixels(trial(kinds=kinds, pretraining=2, seed=3).test) for kinds in (2, 5, 8)))
    pretraining = max(seen, key=len)
    assert len(pretraining) > 1000
    assert not held_out & {tuple(image.flatten().tolist()) for image in pretraining}


def test_pretraining_teaches_the_highest_bit_and_leaves_the_pretrained_alone():
    classifier, _, _, (test,) = trial(pretraining=60)
    before, *_ = trial()
    one = test._replace(labels=(trial(8).test[0].labels >= 4).long())

    def separable(encoder):
        """How well the best linear head on the encoder tells the highest bit, on the same images."""
        with torch.no_grad():
            states = encoder(**test.inputs).last_hidden_state.mean(1).double()
        states = torch.cat([states - states.mean(0), torch.ones(100, 1, dtype=torch.float64)], 1)
        target = 2.0 * one.labels.double() - 1
        answer = states @ torch.linalg.lstsq(states, target.unsqueeze(1)).solution
        return float(((answer[:, 0] > 0) == (target > 0)).double().mean())

    assert separable(classifier.encoder) > separable(before.encoder)
    steps = FineTune(steps=2, batch=32, pretraining=60)
    fine_tune(classifier, trial().batches, steps)
    again, *_ = trial(pretraining=60)
    name = layer_matrices(again)["Q"][0]
    first, tuned = (dict(model.encoder.named_parameters())[name] for model in (again, classifier))
    assert not torch.equal(first, tuned)
    assert torch.equal(first, dict(trial(pretraining=60).classifier.encoder.named_parameters())[name])


@pytest.mark.parametrize(("optimizer", "rate"), [(Optimizer.SGD, 0.1), (Optimizer.ADAMW, 3e-3)])
def test_fine_tuning_learns_what_the_start_does_not_know(optimizer, rate):
    classifier, data, _, test = trial(classes=2, pretraining=60)
    start = {name: value.detach().clone() for name, value in classifier.encoder.named_parameters()}
    _, known = score(classifier, test)
    fine_tune(classifier, data, FineTune(optimizer=optimizer, learning_rate=rate, steps=80, batch=32))
    _, learned = score(classifier, test)
    assert learned > known + 0.15
    assert set(updates(Tuned(classifier, start, test, test))) == {
        name for name, value in start.items() if value.dim() > 1
    }


def test_every_weight_is_a_matrix():
    shapes = {"place": (1, 17, 16), "first": (1, 1, 16), "patch": (16, 1, 2, 2), "linear": (24, 16)}
    seen = {name: tuple(as_matrix(torch.zeros(shape)).shape) for name, shape in shapes.items()}
    assert seen == {"place": (17, 16), "first": (1, 16), "patch": (16, 4), "linear": (24, 16)}


def test_the_experiment_runs_repeats_itself_and_is_drawn(tmp_path):
    (experiment,) = [one for one in experiments(Scale.SMOKE) if one.name == "li2024/digits"]
    store = Store(tmp_path / "store")
    run(schedule([experiment], store, "cpu"), store, "cpu")
    table = store.table(experiment)
    assert table["cell"].nunique() == experiment.size
    assert set(table["setting"]) == {"2 in 2", "8 in 2", "8 in 8"}
    assert set(table["labels"]) == {"true", "permuted"}
    done = []
    cell = experiment.cells()[-1]
    (again,) = experiment.trainer.run([cell], Job(tick=lambda: done.append(1)))
    assert len(done) == experiment.trainer.steps(cell)
    repeated = pd.DataFrame(again.records)
    kept = table[table["cell"] == cell.key()].reset_index(drop=True)[repeated.columns]
    pd.testing.assert_frame_equal(kept, repeated, check_dtype=False, check_exact=True)
    made = figures(Results({experiment.name: table}, store.arrays_of(experiment)))
    assert [one.id.removeprefix("li2024-digits-") for one in made] == ["needed", "shared", "pruning"]
    pruned = made[2].panels[0].series[0]
    whole = rows_of(table, "whole", labels="true", optimizer="SGD", on="held out")
    assert pruned.y[0] == pytest.approx(whole["loss"].mean())
    for one in made:
        assert save_static(one, tmp_path)[0].stat().st_size > 1000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_and_measures_the_same(tmp_path):
    (experiment,) = [one for one in experiments(Scale.SMOKE) if one.name == "li2024/digits"]
    cell = experiment.cells()[0]
    here, there = (experiment.trainer.run([cell], Job(device))[0] for device in ("cpu", "cuda"))
    cpu, gpu = (pd.DataFrame(outcome.records) for outcome in (here, there))
    assert gpu["loss"].dropna().tolist() == pytest.approx(cpu["loss"].dropna().tolist(), rel=1e-2)
    shared = [rows_of(table, "shared")["shared"].tolist() for table in (gpu, cpu)]
    assert shared[0] == pytest.approx(shared[1], rel=1e-2)
