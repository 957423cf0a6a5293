"""Do 64 trainings of li2024's model go faster side by side than one after the other?

Plain: 64 modules, one after the other, autograd and torch.optim.SGD, as anybody would write it, with as many threads as
serve it best (one or all; both are measured first). Ours: the same 64 trainings through the lab's runner (group size
chosen by measurement before the clock starts, one worker a core, every result kept in a store on disk). Both draw their
own fresh batches with the same sampler. Plain and ours alternate; the ratio is taken pair by pair. The machine's own
matrix rate is measured in the same run.

    python benchmarks/ensemble.py [--steps 100] [--pairs 5] [--device cpu]
"""

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil
import torch

from rankscope.core.streams import Split
from rankscope.ensembles import patterns
from rankscope.lab import Experiment, Grid, Outcome, Store
from rankscope.lab.provenance import device_name
from rankscope.lab.runner import run, schedule
from rankscope.papers.li2024.experiments import MODEL, TASK, TRAIN
from rankscope.papers.li2024.trainer import OneLayerTrainer
from rankscope.tasks.patterns import batches

MEMBERS = 64


class PlainOneLayer(torch.nn.Module):
    """Equation (1) as an ordinary module."""

    def __init__(self, weights):
        super().__init__()
        for name in patterns.TRAINED:
            setattr(self, name, torch.nn.Parameter(weights[name][0].clone()))
        self.register_buffer("a", weights["a"][0])

    def forward(self, x):
        queries, keys, values = x @ self.w_q.T, x @ self.w_k.T, x @ self.w_v.T
        mixed = torch.softmax(queries @ keys.transpose(-1, -2), dim=-1) @ values
        return (torch.relu(mixed @ self.w_o.T) @ self.a).mean(-1)


def train_plain(cell, device):
    weights = patterns.init([cell.model], [cell.seed], tokens=cell.task.tokens, device=device)
    module = PlainOneLayer(weights)
    optimizer = torch.optim.SGD(module.parameters(), lr=cell.train.learning_rate)
    data = batches(
        [cell.task],
        [cell.seed],
        split=Split.TRAIN,
        steps=cell.train.steps,
        batch=cell.train.batch,
        device=device,
    )
    for batch in data:
        optimizer.zero_grad()
        loss = torch.clamp(1 - batch.labels[0] * module(batch.x[0]), min=0).mean()
        loss.backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


class Ends(OneLayerTrainer):
    """The trained weights, and no measurement."""

    def measure(self, cells, trained, job):
        end = trained.at[cells[0].train.steps]
        return [Outcome([], {name: end[name][m] for name in patterns.TRAINED}) for m in range(len(cells))]


class PeakMemory:
    """The most memory above the start while the body runs: the tensors' on a GPU, the process's on a CPU (sampled)."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def __enter__(self):
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.held = torch.cuda.memory_allocated()
        self.start = self.peak = psutil.Process().memory_info().rss
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while not self.stop.wait(0.005):
            self.peak = max(self.peak, psutil.Process().memory_info().rss)

    def __exit__(self, *_):
        if self.cuda:
            torch.cuda.synchronize()
        self.stop.set()
        self.thread.join()

    @property
    def mebibytes(self):
        if self.cuda:
            return (torch.cuda.max_memory_allocated() - self.held) / 2**20
        return (self.peak - self.start) / 2**20


def wait_for(device):
    """Let a GPU finish what it was given, so that the clock counts it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def best_threads(cell, device):
    """One thread or all of them: small steps often run faster on one."""
    most, seconds = torch.get_num_threads(), {}
    for threads in (1, most):
        torch.set_num_threads(threads)
        train_plain(cell, device)
        start = time.perf_counter()
        for _ in range(3):
            train_plain(cell, device)
        seconds[threads] = time.perf_counter() - start
    torch.set_num_threads(most)
    return min(seconds, key=seconds.get)


def matrix_rate(device):
    """FLOP/s of a large float32 matrix product: the machine's ceiling."""
    a = torch.randn(2048, 2048, device=device)
    best = 0.0
    for _ in range(8):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start))
    return best


def flops_of_training(cell):
    """Multiply-adds of equation (1) and its gradient, twice each; elementwise work and sampling are not counted."""
    rows, tokens, dim = cell.train.batch * cell.task.tokens, cell.task.tokens, cell.task.dim
    rank, value_rank, hidden = cell.model.rank, cell.model.value_rank, cell.model.hidden
    projections = 2 * rows * dim * (2 * rank + value_rank)
    attention = 3 * rows * tokens * (rank + value_rank)
    neurons = 3 * rows * hidden * value_rank
    return 2 * cell.train.steps * (projections + attention + neurons)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    experiment = Experiment(
        name="benchmark", task=TASK, model=MODEL, train=TRAIN.replace(steps=options.steps),
        grid=Grid(seed=range(MEMBERS)), trainer=Ends(),
    )  # fmt: skip
    cells = experiment.cells()
    threads = best_threads(cells[0], options.device)
    all_threads = torch.get_num_threads()
    pairs, differences, sizes = [], [], set()
    for _ in range(options.pairs):
        torch.set_num_threads(threads)
        with PeakMemory(options.device) as plain_memory:
            start = time.perf_counter()
            plain = [train_plain(cell, options.device) for cell in cells]
            wait_for(options.device)
            plain_seconds = time.perf_counter() - start
        torch.set_num_threads(all_threads)
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            todo = schedule([experiment], store, options.device)
            with PeakMemory(options.device) as our_memory:
                start = time.perf_counter()
                run(todo, store, options.device)
                wait_for(options.device)
                our_seconds = time.perf_counter() - start
            arrays = store.arrays_of(experiment)
            ours = [arrays(cell.key()) for cell in cells]
        sizes |= {len(group.cells) for group in todo.groups}
        pairs.append((plain_seconds, our_seconds, plain_memory.mebibytes, our_memory.mebibytes))
        differences += [
            max((mine[name] - weights[name].cpu()).abs().max().item() for name in patterns.TRAINED)
            for mine, weights in zip(ours, plain, strict=True)
        ]
    rate = matrix_rate(options.device)
    work = MEMBERS * flops_of_training(cells[0])
    ratios = sorted(p / o for p, o, _, _ in pairs)
    result = {
        "question": "64 trainings of li2024's model: the ensemble against one after the other",
        "steps": options.steps,
        "group_sizes": sorted(sizes),
        "trainings_per_second": {
            "plain": MEMBERS / statistics.median(p for p, _, _, _ in pairs),
            "ours": MEMBERS / statistics.median(o for _, o, _, _ in pairs),
        },
        "ratio": {"median": statistics.median(ratios), "least": ratios[0], "greatest": ratios[-1]},
        "peak_mebibytes": {"plain": max(p[2] for p in pairs), "ours": max(p[3] for p in pairs)},
        "share_of_matrix_rate": {
            "plain": work / statistics.median(p for p, _, _, _ in pairs) / rate,
            "ours": work / statistics.median(o for _, o, _, _ in pairs) / rate,
        },
        "matrix_gflops": rate / 1e9,
        "plain_threads": threads,
        "weight_difference": {"median": statistics.median(differences), "greatest": max(differences)},
        "device": device_name(options.device),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    text = json.dumps(result, indent=2)
    print(text)
    suffix = "" if options.device == "cpu" else "-gpu"
    Path(__file__).with_name(f"ensemble{suffix}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
