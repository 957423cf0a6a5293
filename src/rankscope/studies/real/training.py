"""A pretrained encoder under a new head, fine-tuned as a whole on half of the data: what both data sets share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from rankscope.core import Config
from rankscope.core.streams import Split, stream
from rankscope.training.schedule import warmup_cosine

HALVES = 2
"""Parts of the training data that share no example, with a fine-tuning on each."""

WARMUP = 0.1

Item = TypeVar("Item")


class Optimizer(StrEnum):
    """What turns gradients into updates."""

    SGD = "SGD"
    ADAMW = "AdamW"


class FineTune(Config):
    """Cross-entropy, all parameters, linear warm-up and cosine, no dropout, no weight decay.

    pretraining   steps on another task before, where the encoder is not a published one
    """

    optimizer: Optimizer = Optimizer.SGD
    learning_rate: float = Field(default=0.05, gt=0)
    steps: int = Field(ge=1)
    batch: int = Field(ge=1)
    pretraining: int = Field(default=0, ge=0)


class Batch(NamedTuple):
    """What the encoder takes, by the names of its arguments, and the classes."""

    inputs: Mapping[str, Tensor]
    labels: Int[Tensor, " sample"]


class Classifier(nn.Module):
    """logits = head · mean over tokens of the encoder's last states."""

    def __init__(self, encoder: Any, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, batch: Batch) -> Float[Tensor, "sample label"]:
        """One logit a class."""
        states = self.encoder(**batch.inputs).last_hidden_state
        mask = batch.inputs.get("attention_mask", states.new_ones(states.shape[:2]))
        weight = (mask / mask.sum(1, keepdim=True)).unsqueeze(-1)
        logits: Tensor = self.head((states * weight).sum(1))
        return logits


class Trial(NamedTuple):
    """What a fine-tuning needs: a classifier, batches without end of the examples that are seen, and what is held out."""

    classifier: Classifier
    batches: Iterator[Batch]
    seen: Sequence[Batch]
    test: Sequence[Batch]


def with_head(encoder: Any, classes: int, seed: int, device: str, *purpose: str) -> Classifier:
    """The encoder under a head drawn as PyTorch draws it, uniform within 1/√dim; another one for another purpose."""
    width = encoder.config.hidden_size
    head = nn.Linear(width, classes)
    drawn = torch.rand(classes, width, generator=stream(seed, *purpose, "head"))
    with torch.no_grad():
        head.weight.copy_((2 * drawn - 1) / width**0.5)
        head.bias.zero_()
    return Classifier(encoder, head).to(device)


def permuted(labels: Int[Tensor, " sample"], seed: int) -> Int[Tensor, " sample"]:
    """The labels dealt out anew among the examples: as many of each class, and nothing to learn but the examples."""
    return labels[torch.randperm(len(labels), generator=stream(seed, "permuted labels"))]


def shuffled(items: Sequence[Item], size: int, seed: int, *purpose: str) -> Iterator[list[Item]]:
    """Groups of items without end: the items in a new order every time through, and for every purpose."""
    queue: list[Item] = []
    turn = 0
    while True:
        while len(queue) < size:
            order = torch.randperm(
                len(items), generator=stream(seed, *purpose, "order", Split.TRAIN, turn)
            ).tolist()
            queue += [items[place] for place in order]
            turn += 1
        yield queue[:size]
        queue = queue[size:]


def fine_tune(
    classifier: Classifier,
    data: Iterator[Batch],
    train: FineTune,
    *,
    steps: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train every parameter in place, for fewer `steps` if told so; the loss of every step."""
    parameters = list(classifier.parameters())
    optimizer: torch.optim.Optimizer
    if train.optimizer is Optimizer.SGD:
        optimizer = torch.optim.SGD(parameters, lr=train.learning_rate)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=train.learning_rate, weight_decay=0.0, fused=True)
    losses = []
    for step in range(train.steps if steps is None else min(steps, train.steps)):
        for group in optimizer.param_groups:
            group["lr"] = train.learning_rate * warmup_cosine(step, train.steps, WARMUP)
        batch = next(data)
        optimizer.zero_grad()
        loss = functional.cross_entropy(classifier(batch), batch.labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
        tick()
    return [float(loss) for loss in losses]
