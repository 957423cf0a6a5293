"""Workers: closures as tasks, progress, stopping, and no process that outlives its owner."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch

from rankscope.core import RankscopeError
from rankscope.lab.engines.local import Local
from rankscope.lab.engines.workers import CancelledError, hands


@pytest.mark.parametrize("count", [1, 2])
def test_a_task_may_be_any_callable_and_tells_how_far_it_is(count):
    base = 40

    def add(signals, given):
        signals.advance(0.5)
        return base + given

    with hands(count, [add]) as workers:
        assert workers.submit(0, 2).result() == 42
        assert workers.done == 0.5


def test_an_exception_stops_what_runs():
    def wait(signals, given):
        signals.advance(1.0)
        while True:
            signals.advance(0.0)
            time.sleep(0.01)

    futures = []

    def interrupted():
        with hands(2, [wait]) as workers:
            futures.extend(workers.submit(0) for _ in range(2))
            while workers.done < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [type(future.exception()) for future in futures] == [CancelledError] * 2


@pytest.mark.parametrize("count", [1, 2])
def test_after_an_exception_what_waits_is_not_begun(count):
    def work(signals, given):
        signals.done[signals.place] += 1
        time.sleep(0.02)

    told = []

    def interrupted():
        with hands(count, [work]) as workers:
            told.append(workers)
            for _ in range(100):
                workers.submit(0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told[0].done < 20


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
@pytest.mark.parametrize("asked_by", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_asked_to_end_stops_at_its_next_step(tmp_path, asked_by):
    def work(signals, name):
        (tmp_path / name).write_text(str(os.getpid()))
        signals.advance(1.0)
        try:
            while True:
                signals.advance(0.0)
                time.sleep(0.001)
        except CancelledError:
            (tmp_path / f"{name} kept").touch()
            raise

    def asked():
        with hands(2, [work]) as workers:
            for name in "ab":
                workers.submit(0, name)
            while workers.done < 2:  # both have begun
                time.sleep(0.01)
            for name in "ab":
                os.kill(int((tmp_path / name).read_text()), asked_by)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked()
    assert {path.name for path in tmp_path.glob("*kept")} == {"a kept", "b kept"}


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
def test_a_worker_that_does_not_come_to_its_next_step_is_killed(monkeypatch):
    monkeypatch.setattr("rankscope.lab.engines.workers.GRACE", 0.3)

    def work(signals, endless):
        signals.advance(1.0)
        time.sleep(3600 if endless else 0.1)
        return "whole"

    futures = []

    def interrupted():
        with hands(2, [work]) as workers:
            futures.extend(workers.submit(0, endless) for endless in (True, False))
            wait_for(lambda: workers.done == 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert isinstance(futures[0].exception(), BrokenProcessPool)
    assert futures[1].result() == "whole"


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
def test_a_worker_that_dies_leaves_no_one_waiting():
    """Killed again and again while it tells how far it is, which no lock may guard."""

    def work(signals, given):
        while True:
            signals.advance(1.0)

    def killed():
        with hands(2, [work]) as workers:
            futures = [workers.submit(0) for _ in range(2)]
            wait_for(lambda: all(workers.signals.pids[:2]) and workers.done > 100)
            os.kill(workers.signals.pids[0], signal.SIGKILL)
            futures[0].result()

    for _ in range(3):
        with pytest.raises(RankscopeError, match="A worker process died"):
            killed()


@pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")
def test_workers_die_with_their_owner(tmp_path, request):
    def work(signals, path):
        path.write_text(str(os.getpid()))
        time.sleep(30)

    def own():
        with hands(2, [work]) as workers:
            for name in ("a", "b"):
                workers.submit(0, tmp_path / name)
            time.sleep(30)

    owner = multiprocessing.get_context("fork").Process(target=own)
    owner.start()
    names = [tmp_path / name for name in ("a", "b")]
    wait_for(lambda: all(name.exists() and name.read_text() for name in names))
    workers = [int(name.read_text()) for name in names]
    request.addfinalizer(lambda: [os.kill(pid, signal.SIGKILL) for pid in workers if alive(pid)])
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    wait_for(lambda: not any(map(alive, workers)))


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_streams_are_asked_for_and_a_process_per_core_is_not(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert Local.here("cpu") == Local("cpu", 3, streams=False)
    assert Local.here("cpu", streams=2) == Local("cpu", 2, streams=True)
    assert Local.here("cuda") == Local("cuda", 1, streams=False)
    assert [Local.here("cpu").place, Local.here("cpu", streams=2).place] == ["3", "1"]
