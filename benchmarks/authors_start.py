"""What do amsel2024's encoders do in their first epochs, from the authors' own start, on their own batches, in plain PyTorch?

    python benchmarks/authors_start.py --layers 5 --epochs 15

The authors' program seeds PyTorch with 613 before it makes the encoder, whatever the seed of the data is, so that all
trainings of a line of figure 1 begin with the same weights. Worker w of seven draws points from a stream of seed + w,
anew in every epoch, and batch i is worker i mod 7's: two neighbouring seeds share six of seven streams. Both are followed
here draw by draw. Per epoch the learning rate, the mean training loss and every layer's last scalar are printed; the last
layer's is the size of the answer. `--rate` and `--schedule` change how fast the learning rate rises, which decides whether
five layers learn anything. The default size takes a second per step on one core.
"""

import argparse
import copy
import itertools
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.training.schedule import epoch_warmup_cosine

START, WORKERS, BATCHES = 613, 7, 100


class Norm(nn.Module):
    """One learned scalar times the unit vector."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * functional.normalize(x, dim=2, eps=0)


class Layer(nn.Module):
    """Post-norm, the mean of `budget` attentions; made in the order in which the authors' program draws."""

    def __init__(self, dim: int, heads: int, hidden: int, budget: int) -> None:
        super().__init__()
        stock = nn.TransformerEncoderLayer(
            dim, heads, hidden, dropout=0.0, batch_first=True
        )  # its attention is not used
        self.blocks = nn.ModuleList(
            nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(budget)
        )
        self.first, self.second = stock.linear1, stock.linear2
        self.attention_norm, self.mlp_norm = Norm(), Norm()

    def forward(self, x: Tensor) -> Tensor:
        attended = sum(block(x, x, x, need_weights=False)[0] for block in self.blocks)
        x = self.attention_norm(x + attended / len(self.blocks))
        return self.mlp_norm(x + self.second(functional.relu(self.first(x))))


def encoder(options: argparse.Namespace) -> nn.Sequential:
    """Copies of one layer."""
    torch.manual_seed(options.start)
    layer = Layer(options.dim, options.heads, options.hidden, options.budget)
    return nn.Sequential(*(copy.deepcopy(layer) for _ in range(options.layers)))


def batches(options: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of an epoch: points, and for each of them the farthest."""
    workers = [torch.Generator().manual_seed(options.seed + worker) for worker in range(WORKERS)]
    for worker in itertools.islice(itertools.cycle(workers), BATCHES):
        drawn = [torch.randn(options.dim, options.tokens, generator=worker) for _ in range(options.batch)]
        points = torch.stack([one / one.norm(dim=0) for one in drawn]).mT
        farthest = (points @ points.mT).argmin(-1, keepdim=True).expand_as(points)
        yield points, points.gather(1, farthest)


def main() -> None:
    """One training, a line per epoch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    sizes = {"dim": 64, "tokens": 16, "hidden": 2048, "layers": 5, "budget": 1, "heads": 1, "batch": 256}
    for name, value in {**sizes, "seed": 0, "start": START, "epochs": 15, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--schedule", type=int, default=1000, help="epochs of the whole schedule, a 20th of them warm-up"
    )
    parser.add_argument("--rate", type=float, default=0.01, help="the largest learning rate")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, epoch = encoder(options), list(batches(options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    start = time.perf_counter()
    for number in range(options.epochs):
        factor = epoch_warmup_cosine(number * BATCHES, options.schedule * BATCHES, 0.05, BATCHES)
        optimizer.param_groups[0]["lr"] = rate = options.rate * factor
        total = 0.0
        for points, answers in epoch:
            loss = (model(points) - answers).square().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scales = " ".join(f"{layer.mlp_norm.scale.item():.3f}" for layer in model)
        took = time.perf_counter() - start
        print(
            f"epoch {number}: rate {rate:.5f}, loss {total / BATCHES:.4f}, scalars {scales}, {took:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
