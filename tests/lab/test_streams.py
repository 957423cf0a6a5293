"""Streams: groups side by side in threads of one process, and the same table as one after the other."""

import threading
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch

from rankscope.catalogue import PAPERS
from rankscope.lab import Scale, Store, run
from rankscope.lab.runner import schedule
from tests.lab.toy import ToyTrainer, stacked, toy


class Meeting(ToyTrainer):
    """Groups of which none ends before two are under way in one process."""

    def __init__(self):
        super().__init__()
        self.both, self.threads = threading.Barrier(2, timeout=20), set()

    def train(self, cells, job):
        self.threads.add(threading.get_ident())
        self.both.wait()


def test_two_groups_are_under_way_at_a_time_in_threads_of_this_process(tmp_path):
    experiment = replace(toy(12), trainer=Meeting())
    store = Store(tmp_path)
    todo = schedule([experiment], store, "cpu", streams=2)
    assert (todo.workers, todo.streams) == (2, True)
    assert run(todo, store, "cpu") == 0
    assert len(experiment.trainer.threads) == 2
    assert len(store.finished(experiment)) == 12


def test_streams_give_the_same_table_bit_for_bit(tmp_path):
    experiment = next(
        one for one in PAPERS["amsel2024"].experiments(Scale.SMOKE) if one.trainer.stacked and one.size > 2
    )
    tables = []
    for streams in (None, 2):
        store = Store(tmp_path / str(streams))
        run(schedule([experiment], store, "cpu", group_size=2, streams=streams), store, "cpu")
        tables.append(store.table(experiment))
    assert len(tables[0]) > 0
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_a_stream_that_fails_stops_the_others_and_keeps_what_is_finished(tmp_path):
    class Failing(ToyTrainer):
        def train(self, cells, job):
            if cells[0].seed == 1 and cells[0].model.scale == 3.0:
                time.sleep(0.1)
                raise ValueError("of one group")

    experiment = replace(toy(12), trainer=Failing())
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="of one group"):
        run(schedule([experiment], store, "cpu", streams=2), store, "cpu")
    assert 0 < len(store.finished(experiment)) < 12


def test_a_group_of_a_stream_fits_into_its_share_of_a_gpus_memory(tmp_path, monkeypatch):
    """A GPU of 80 GiB whose groups need 5 GiB a member."""
    limits = []
    monkeypatch.setattr("rankscope.lab.runner._total_memory", lambda device: 80.0)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, index: limits.append(share)
    )
    trainer = stacked(lambda cells: 0.01 if 5 * len(cells) <= 80 * limits[-1] else float("inf"))
    experiment, store = replace(toy(), trainer=trainer), Store(tmp_path)
    todo = schedule([experiment], store, "cuda", streams=4)
    assert limits == [0.25, 1.0], "a share while sizes are probed, all of it afterwards"
    assert max(len(group.cells) for group in todo.groups) <= 4
