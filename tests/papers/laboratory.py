"""Experiments run from end to end, for tests of their tables and figures."""

from rankscope.lab import Store, run
from rankscope.lab.runner import schedule


def finish(experiments, folder):
    """A store with every cell, and each experiment's table."""
    store = Store(folder)
    run(schedule(experiments, store, "cpu"), store, "cpu")
    return store, {experiment.name: store.table(experiment) for experiment in experiments}
