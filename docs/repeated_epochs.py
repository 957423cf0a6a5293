"""A stream that is seeded when it is iterated repeats itself in every epoch; what a model then learns of it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Points(IterableDataset):
    """Endless pairs: eight points on the sphere, and for each of them the farthest of the eight."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)  # anew for every pass of the loader
        while True:
            points = nn.functional.normalize(torch.randn(8, 16, generator=generator), dim=-1)
            yield points, points[(points @ points.T).argmin(-1)]


def epoch(seed, batches=5):
    return [batch for batch, _ in zip(DataLoader(Points(seed), batch_size=32), range(batches), strict=False)]


def error(model, x, y):
    return (model(x) - y).square().sum(-1).mean()  # 1 for the answer 0


torch.set_num_threads(1)  # two would wait for each other
print(
    "two epochs are equal:", all(torch.equal(a, b) for (a, _), (b, _) in zip(epoch(0), epoch(0), strict=True))
)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(
    16, nhead=8, dim_feedforward=256, dropout=0.0, batch_first=True
)  # heads of rank 2
model = nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(16, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
for _ in range(200):
    for batch in epoch(0):
        optimizer.zero_grad()
        error(model, *batch).backward()
        optimizer.step()
for name, seed in (("the points trained on", 0), ("new points", 1)):
    print(f"error on {name}: {sum(error(model, *batch).item() for batch in epoch(seed)) / 5:.2f}")
