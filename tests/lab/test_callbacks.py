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


class FakeClient:
    """Records what MLflow's client is told."""

    def __init__(self, logged):
        self.logged = logged

    def log_batch(self, run_id, metrics, tags):
        self.logged += [(run_id, *metric) for metric in metrics] + [(run_id, *tag) for tag in tags]


def fake_mlflow(logged):
    return types.SimpleNamespace(
        entities=types.SimpleNamespace(
            Metric=lambda key, value, at, step: (key, value, step), RunTag=lambda key, value: (key, value)
        ),
        MlflowClient=lambda: FakeClient(logged),
        start_run=lambda run_name: types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_name)),
        end_run=lambda: logged.append("ended"),
    )


def test_wandb_gets_an_entry_per_cell(monkeypatch, tmp_path):
    logged = []

    def init(**given):
        assert given == {"project": "rankscope", "dir": str(tmp_path / "run"), "name": "run"}
        return types.SimpleNamespace(log=logged.append, finish=lambda: logged.append("ended"))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    tracker = writer("wandb", tmp_path / "run")
    tracker.progress(0.5)
    tracker.cell("toy", {"rank": 2, "kind": ("a",)}, {"total": 1.5})
    tracker.close()
    assert logged == [{"progress": 0.5}, {"toy/rank": 2, "toy/kind": "('a',)", "toy/total": 1.5}, "ended"]


def test_mlflow_gets_numbers_as_metrics_and_settings_as_a_tag(monkeypatch, tmp_path):
    logged = []
    monkeypatch.setitem(sys.modules, "mlflow", fake_mlflow(logged))
    tracker = writer("mlflow", tmp_path / "run")
    tracker.progress(0.5)
    tracker.cell("toy", {"rank": 2, "kind": ("a",)}, {"total": 1.5})
    tracker.close()
    assert logged == [
        ("run", "progress", 0.5, 1), ("run", "toy/rank", 2.0, 1), ("run", "toy/total", 1.5, 1),
        ("run", "toy/1", "rank=2, kind=('a',)"), "ended",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_does_not_begin_is_one_line_with_a_remedy(monkeypatch, tmp_path, name):
    def fail(**_):
        raise OSError("\nno server\nand more")

    module = types.SimpleNamespace(**{**vars(fake_mlflow([])), "init": fail, "start_run": fail})
    monkeypatch.setitem(sys.modules, name, module)
    remedy = {"wandb": "Log in with wandb login, or set WANDB_MODE=offline.",
              "mlflow": "Name a store that it can write to in MLFLOW_TRACKING_URI."}[name]  # fmt: skip
    with pytest.raises(InputError, match=rf"^{name} did not begin: no server\. {remedy}$"):
        writer(name, tmp_path)


def test_a_tracker_that_fails_is_let_go_and_stops_no_run(monkeypatch, tmp_path):
    asked = []

    def log(_):
        asked.append(1)
        raise ConnectionError("the server is gone")

    run_there = types.SimpleNamespace(log=log, finish=lambda: asked.append(2))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **_: run_there))
    tracker = writer("wandb", tmp_path)
    with pytest.warns(
        UserWarning, match=r"^wandb failed and hears no more of this run: the server is gone\.$"
    ):
        table = go(tmp_path / "run", tracker)
    tracker.close()
    assert (len(table), asked) == (6, [1])


def test_mlflow_itself_holds_what_was_told(monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="mlflow's SQLite store needs sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/ml.db")
    tracker = writer("mlflow", tmp_path / "run")
    table = go(tmp_path / "run", tracker)
    tracker.close()
    client = mlflow.MlflowClient()
    (found,) = client.search_runs(["0"])
    history = client.get_metric_history(found.info.run_id, "toy/total")
    assert sorted(one.value for one in history) == sorted(table["total"])
    assert (found.info.status, found.info.run_name) == ("FINISHED", "run")
    assert found.data.tags["toy/1"].startswith("scale=")
    assert found.data.metrics["progress"] == 1


def test_wandb_itself_holds_what_was_told(monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = writer("wandb", tmp_path / "run")
    table = go(tmp_path / "run", tracker)
    last = dict(wandb.run.summary)
    tracker.close()
    cell = table[(table["scale"] == last["toy/scale"]) & (table["seed"] == last["toy/seed"])]
    assert last["toy/total"] == cell["total"].mean()
    assert last["progress"] == 1
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))


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


def test_cells_are_steps_of_their_experiment(monkeypatch, tmp_path):
    logged = []
    board = types.SimpleNamespace(
        add_scalar=lambda key, value, step: logged.append((key, value, step)),
        add_text=lambda key, text, step: logged.append((key, text, step)),
    )
    modules = {
        "tensorboard": types.ModuleType("tensorboard"),
        "torch.utils.tensorboard": types.SimpleNamespace(SummaryWriter=lambda folder: board),
    }
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)
    tracker = writer("tensorboard", tmp_path)
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
    assert ("one/settings", "rank=2, kind=a", 1) in logged


def test_a_run_tells_how_far_it_is_a_hundred_times_at_most():
    heard = Heard()
    told = telling(heard, 1.0)
    for _ in range(5000):
        told(0.0002)
    told(0.1)
    assert 90 <= len(heard.shares) <= 101
    assert heard.shares[-1] == 1


def test_without_a_callback_the_store_is_a_plain_one(tmp_path):
    store = store_for(tmp_path / "run", None)
    assert (type(store), store.folder) == (Store, tmp_path / "run")
