"""Progress and metrics reach a callback, and TensorBoard's files hold them."""

import sys
import types

import pytest

from rankscope.core import InputError
from rankscope.lab import run
from rankscope.lab.callbacks import store_for, telling, writer
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
    wandb = types.SimpleNamespace(
        init=lambda **_: types.SimpleNamespace(log=logged.update, finish=lambda: logged.update(ended=True))
    )
    mlflow = types.SimpleNamespace(
        start_run=lambda run_name: None,
        log_metric=lambda key, value, step: logged.update({key: value}),
        end_run=lambda: logged.update(ended=True),
    )
    monkeypatch.setitem(sys.modules, name, {"wandb": wandb, "mlflow": mlflow}[name])
    tracker = writer(name, tmp_path)
    tracker.progress(0.5)
    tracker.cell("toy", {"rank": 2, "kind": "a"}, {"total": 1.5})
    tracker.close()
    assert logged["progress"] == 0.5
    assert (logged["toy/rank"], logged["toy/total"], logged["ended"]) == (2, 1.5, True)


def test_a_tracker_that_is_not_installed_or_known_is_refused_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"wandb cannot be imported: pip install 'rankscope\[wandb\]'"):
        writer("wandb", tmp_path)
    with pytest.raises(InputError, match=r"No tracker 'tensorbord'\. Did you mean 'tensorboard'\?"):
        writer("tensorbord", tmp_path)
