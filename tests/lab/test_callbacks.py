"""Progress and metrics reach a callback, and TensorBoard's files hold them."""

import sys
import types

import pytest

from rankscope.core import InputError
from rankscope.lab import Outcome, Store, run
from rankscope.lab.callbacks import metrics_of, store_for, telling, writer
from rankscope.lab.runner import schedule
from tests.lab.toy import toy


class Heard:
    def __init__(self):
        self.cells, self.shares = [], []

    def progress(self, share):
        self.shares.append(share)

    def cell(self, experiment, settings, metrics):
        self.cells.append((experiment, settings, metrics))

    def close(self):
        pass


def go(folder, callback):
    store = store_for(folder, callback)
    todo = schedule([toy(cells=6)], store, "cpu")
    run(todo, store, "cpu", advance=telling(callback, sum(group.seconds for group in todo.groups)))
    return store.table(toy(cells=6))


def test_a_callback_hears_of_every_cell_as_it_is_stored(tmp_path):
    heard = Heard()
    table = go(tmp_path, heard)
    told = {(s["scale"], s["seed"]): m["total"] for name, s, m in heard.cells if name == "toy"}
    assert told == dict(zip(zip(table["scale"], table["seed"], strict=True), table["total"], strict=True))
    assert heard.shares == sorted(heard.shares)
    assert 0 < heard.shares[-1] <= 1


def test_tensorboard_files_hold_what_was_told(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = writer("tensorboard", tmp_path)
    table = go(tmp_path / "run", board)
    board.close()
    read = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    values = sorted(one.value for one in read.Scalars("toy/total"))
    assert values == pytest.approx(sorted(table["total"]), rel=1e-6)
    assert read.Scalars("progress")[-1].value <= 1


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_other_trackers_get_the_same_numbers(monkeypatch, tmp_path, name):
    logged = {}

    def init(**given):
        assert given == {"project": "rankscope", "dir": str(tmp_path / "wandb"), "name": "wandb"}
        return types.SimpleNamespace(log=logged.update, finish=lambda: logged.update(ended=True))

    wandb = types.SimpleNamespace(init=init)
    mlflow = types.SimpleNamespace(
        start_run=lambda run_name: None,
        log_metric=lambda key, value, step: logged.update({key: value}),
        end_run=lambda: logged.update(ended=True),
    )
    monkeypatch.setitem(sys.modules, name, {"wandb": wandb, "mlflow": mlflow}[name])
    tracker = writer(name, tmp_path)
    tracker.progress(0.5)
    tracker.cell("toy", {"rank": 2, "kind": ("a",)}, {"total": 1.5})
    tracker.close()
    assert logged.get("toy/kind") == {"wandb": "('a',)", "mlflow": None}[name]
    assert logged["progress"] == 0.5
    assert (logged["toy/rank"], logged["toy/total"], logged["ended"]) == (2, 1.5, True)


def test_a_tracker_that_is_not_installed_or_known_is_refused_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for name in ("wandb", "tensorboard", "mlflow"):
        said = rf"^{name} cannot be imported: pip install 'rankscope\[{name}\]'\.$"
        with pytest.raises(InputError, match=said) as caught:
            writer(name, tmp_path)
        assert caught.value.argument == "track"
    with pytest.raises(InputError, match=r"No tracker 'tensorbord'\. Did you mean 'tensorboard'\?") as caught:
        writer("tensorbord", tmp_path)
    assert caught.value.argument == "track"


def test_a_cells_metrics_are_means_of_finite_numbers():
    rows = [
        {"a": 1, "flag": True, "name": "x", "gone": float("nan")},
        {"a": 2.0, "gone": 3, "more": float("inf")},
    ]
    assert metrics_of(Outcome(rows)) == {"a": 1.5, "gone": 3.0}


def test_the_share_that_is_done_is_told_and_what_is_shown_still_advances():
    heard, shown = Heard(), []
    told = telling(heard, 4.0, shown.append)
    for seconds in (1.0, 0.0, 2.0, 5.0):
        told(seconds)
    assert (heard.shares, shown) == ([0.25, 0.75, 1.0], [1.0, 0.0, 2.0, 5.0])
    telling(heard, 0.0)(1.0)
    telling(None, 4.0, shown.append)(1.0)
    assert (len(heard.shares), len(shown)) == (3, 5)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_cells_are_steps_of_their_experiment(monkeypatch, tmp_path, name):
    logged = []
    board = types.SimpleNamespace(
        add_scalar=lambda key, value, step: logged.append((key, value, step)),
        add_text=lambda key, text, step: logged.append((key, text, step)),
    )
    modules = {
        "tensorboard": types.ModuleType("tensorboard"),
        "torch.utils.tensorboard": types.SimpleNamespace(SummaryWriter=lambda folder: board),
        "mlflow": types.SimpleNamespace(
            start_run=lambda run_name: logged.append((run_name, "", 0)),
            log_metric=lambda key, value, step: logged.append((key, value, step)),
        ),
    }
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)
    tracker = writer(name, tmp_path)
    for share in (0.5, 1.0):
        tracker.progress(share)
    for experiment in ("one", "two", "one"):
        tracker.cell(experiment, {"rank": 2, "kind": "a"}, {"total": 1.5})
    assert [entry for entry in logged if entry[0] == "progress"] == [
        ("progress", 0.5, 1),
        ("progress", 1.0, 2),
    ]
    assert [entry for entry in logged if entry[1] == 1.5] == [
        ("one/total", 1.5, 1), ("two/total", 1.5, 1), ("one/total", 1.5, 2),
    ]  # fmt: skip
    settings = {"tensorboard": ("one/settings", "rank=2, kind=a", 1), "mlflow": ("one/rank", 2, 1)}
    assert settings[name] in logged
    assert (("mlflow", "", 0) in logged) == (name == "mlflow")


def test_without_a_callback_the_store_is_a_plain_one(tmp_path):
    store = store_for(tmp_path / "run", None)
    assert (type(store), store.folder) == (Store, tmp_path / "run")
