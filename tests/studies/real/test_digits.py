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
from rankscope.studies.real.measurement import PARTS, as_matrix, layer_matrices, score, updates
from rankscope.studies.real.training import FineTune, Optimizer, fine_tune

pytestmark = pytest.mark.skipif(
    assets.missing_digits() is not None, reason=f"no digits: {assets.missing_digits()}"
)

TINY = SmallVit(dim=16, layers=2, heads=2, hidden=24)


def trial(classes=2, pretraining=0, seed=0, **train):
    given = FineTune(**{"steps": 1, "batch": 32, "pretraining": pretraining, **train})
    return digits.prepare(Digits(test=100, classes=classes), TINY, given, seed, "cpu")


def test_images_are_split_by_seed_and_labelled_by_the_lowest_bits():
    by_count = {classes: trial(classes).test[0] for classes in (2, 4, 8)}
    whole = by_count[8].labels
    assert whole.unique().tolist() == list(range(8))
    for classes, batch in by_count.items():
        assert torch.equal(batch.labels, whole % classes)
        assert torch.equal(batch.inputs["pixel_values"], by_count[2].inputs["pixel_values"])
    pixels = by_count[2].inputs["pixel_values"]
    assert pixels.shape == (100, 1, 8, 8)
    assert (pixels.min(), pixels.max()) == (-1, 1)
    assert not torch.equal(trial(seed=1).test[0].inputs["pixel_values"], pixels)


def test_no_image_is_both_trained_on_and_held_out():
    _, data, (test,) = trial(batch=1343)
    training = {tuple(image.flatten().tolist()) for image in next(data).inputs["pixel_values"]}
    held_out = {tuple(image.flatten().tolist()) for image in test.inputs["pixel_values"]}
    assert len(training) > 1300
    assert not training & held_out


def test_pretraining_teaches_the_highest_bit_and_leaves_the_pretrained_alone():
    classifier, _, (test,) = trial(pretraining=60)
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
    classifier, data, test = trial(classes=2, pretraining=60)
    start = {name: value.detach().clone() for name, value in classifier.encoder.named_parameters()}
    known, _ = score(classifier, test)
    fine_tune(classifier, data, FineTune(optimizer=optimizer, learning_rate=rate, steps=80, batch=32))
    learned, _ = score(classifier, test)
    assert learned > known + 0.15
    assert set(updates(classifier, start)) == {name for name, value in start.items() if value.dim() > 1}


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
    assert sorted(set(table["classes"])) == [2, 8]
    done = []
    cell = experiment.cells()[-1]
    (again,) = experiment.trainer.run([cell], Job(tick=lambda: done.append(1)))
    assert len(done) == experiment.trainer.steps(cell)
    kept = table[table["cell"] == cell.key()].to_dict("records")
    for row, record in zip(kept, again.records, strict=True):
        assert {name: row[name] for name in record} == record
    assert again.arrays["energy@0.90"].shape == (1, len(PARTS))
    made = figures(Results({experiment.name: table}, store.arrays_of(experiment)))
    assert [one.id.removeprefix("li2024-digits-") for one in made] == [
        "ranks",
        "truncation",
        "neurons",
        "classes",
    ]
    two = rows_of(table, "whole", classes=2, optimizer="SGD")
    whole = made[1].panels[0].series[0]
    assert whole.name == "SGD"
    assert whole.y[-1] == pytest.approx(two["accuracy"].mean()), "these figures have two classes"
    assert save_static(made[-1], tmp_path)[0].stat().st_size > 1000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_and_measures_the_same(tmp_path):
    (experiment,) = [one for one in experiments(Scale.SMOKE) if one.name == "li2024/digits"]
    cell = experiment.cells()[0]
    here, there = (experiment.trainer.run([cell], Job(device))[0] for device in ("cpu", "cuda"))
    cpu, gpu = (pd.DataFrame(outcome.records) for outcome in (here, there))
    assert gpu["loss"].dropna().tolist() == pytest.approx(cpu["loss"].dropna().tolist(), rel=1e-2)
    medians = [rows_of(table, "energy rank", part="all")["energy_rank"].tolist() for table in (gpu, cpu)]
    assert medians[0] == pytest.approx(medians[1], rel=1e-2)
    torch.testing.assert_close(
        there.arrays["neurons/update"], here.arrays["neurons/update"], rtol=1e-2, atol=1e-6
    )
