"""all-MiniLM-L6-v2 fine-tuned as a whole on the sign of a review's rating."""

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from rankscope.checkpoints import open_source
from rankscope.checkpoints.modules import import_transformers
from rankscope.core import Config, stream
from rankscope.papers.li2024.real.assets import model_folder, reviews
from rankscope.training.schedule import warmup_cosine

CLASSES = 2
WARMUP = 0.1
_BUILDING = threading.Lock()


class Reviews(Config):
    """Movie-review snippets of at most `longest` tokens; positive or negative, what is rated between ±1 left out.

    test, train   how many are held out, and how many of the others are trained on (all of them if not given)
    missing       what the machine lacks, if it lacks something: nothing is run then
    """

    longest: int = Field(ge=4, le=512)
    test: int = Field(ge=1)
    train: int | None = Field(default=None, ge=1)
    least_rating: float = Field(default=1.0, gt=0)
    missing: str | None = None


class MiniLm(Config):
    """The first `layers` of the encoder, mean pooling, and a random linear head."""

    layers: int = Field(default=6, ge=1, le=6)


class Optimizer(StrEnum):
    """What turns gradients into updates."""

    SGD = "SGD"
    ADAMW = "AdamW"


class FineTune(Config):
    """Cross-entropy, all parameters, linear warm-up and cosine, no dropout, no weight decay."""

    optimizer: Optimizer
    learning_rate: float = Field(gt=0)
    steps: int = Field(ge=1)
    batch: int = Field(ge=1)


class Batch(NamedTuple):
    """Sentences padded to the longest of them."""

    tokens: Int[Tensor, "sample token"]
    mask: Int[Tensor, "sample token"]
    labels: Int[Tensor, " sample"]


class Sentence(NamedTuple):
    """Token ids and the class."""

    tokens: list[int]
    label: int


class Classifier(nn.Module):
    """logits = head · mean over tokens of the encoder's last states."""

    def __init__(self, encoder: Any, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, batch: Batch) -> Float[Tensor, "sample label"]:
        """One logit a class."""
        states = self.encoder(input_ids=batch.tokens, attention_mask=batch.mask).last_hidden_state
        weight = (batch.mask / batch.mask.sum(1, keepdim=True)).unsqueeze(-1)
        logits: Tensor = self.head((states * weight).sum(1))
        return logits


def fresh_encoder(layers: int) -> Any:
    """The published encoder with its first `layers`, a copy of its own for the caller."""
    with _BUILDING:
        return copy.deepcopy(_published(layers))


def fresh_classifier(model: MiniLm, seed: int, device: str) -> Classifier:
    """The published encoder with a head drawn as PyTorch draws it, uniform within 1/√dim."""
    encoder = fresh_encoder(model.layers)
    width = encoder.config.hidden_size
    head = nn.Linear(width, CLASSES)
    with torch.no_grad():
        head.weight.copy_((2 * torch.rand(CLASSES, width, generator=stream(seed, "head")) - 1) / width**0.5)
        head.bias.zero_()
    return Classifier(encoder, head).to(device)


def split(task: Reviews, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """The training sentences and the held-out ones, drawn anew for every seed; a sentence that occurs twice counts once."""
    once = {
        tuple(tokens): Sentence(tokens, int(rating > 0))
        for rating, tokens in _tokenised()
        if abs(rating) >= task.least_rating and len(tokens) <= task.longest
    }
    fit = list(once.values())
    order = torch.randperm(len(fit), generator=stream(seed, "reviews")).tolist()
    chosen = [fit[place] for place in order]
    end = None if task.train is None else task.test + task.train
    return chosen[task.test : end], chosen[: task.test]


def padded(sentences: Sequence[Sentence], device: str) -> Batch:
    """A batch of the sentences."""
    rows = [torch.tensor(sentence.tokens) for sentence in sentences]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    labels = torch.tensor([sentence.label for sentence in sentences])
    return Batch(tokens.to(device), mask.to(device), labels.to(device))


def batches(sentences: Sequence[Sentence], size: int, seed: int, device: str) -> Iterator[Batch]:
    """Batches without end: the sentences in a new order every time through."""
    queue: list[Sentence] = []
    turn = 0
    while True:
        while len(queue) < size:
            order = torch.randperm(len(sentences), generator=stream(seed, "order", turn)).tolist()
            queue += [sentences[place] for place in order]
            turn += 1
        yield padded(queue[:size], device)
        queue = queue[size:]


def fine_tune(
    classifier: Classifier, data: Iterator[Batch], train: FineTune, *, tick: Callable[[], None] = lambda: None
) -> list[float]:
    """Train every parameter in place; the loss of every step."""
    parameters = list(classifier.parameters())
    optimizer: torch.optim.Optimizer
    if train.optimizer is Optimizer.SGD:
        optimizer = torch.optim.SGD(parameters, lr=train.learning_rate)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=train.learning_rate, weight_decay=0.0, fused=True)
    losses = []
    for step in range(train.steps):
        for group in optimizer.param_groups:
            group["lr"] = train.learning_rate * warmup_cosine(step, train.steps, WARMUP)
        batch = next(data)
        optimizer.zero_grad()
        loss = functional.cross_entropy(classifier(batch), batch.labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
        tick()
    return losses


@cache
def seconds_per_step(task: Reviews, model: MiniLm, train: FineTune, device: str) -> float:
    """Time of one training step, after one to warm up."""
    classifier = fresh_classifier(model, 0, device)
    data = batches(split(task, 0)[0], train.batch, 0, device)
    fine_tune(classifier, data, train.replace(steps=1))
    start = time.perf_counter()
    fine_tune(classifier, data, train.replace(steps=1))
    return time.perf_counter() - start


@cache
def _published(layers: int) -> Any:
    """Built from its configuration and filled from its file: no state of the library is touched, so threads may."""
    transformers = import_transformers()
    folder = model_folder()
    assert folder is not None
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = transformers.BertConfig(**{**settings, "num_hidden_layers": layers})
    encoder = transformers.BertModel(config, add_pooling_layer=False).eval()
    source = open_source(folder)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            parameter.copy_(source.tensor(name))
    return encoder


@cache
def _tokenised() -> tuple[tuple[float, list[int]], ...]:
    """Every review's rating and token ids, by the model's own tokenizer."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder()) + "/tokenizer.json")
    tokenizer.no_padding()
    rated = reviews()
    encoded = tokenizer.encode_batch([review.text for review in rated])
    return tuple((review.rating, text.ids) for review, text in zip(rated, encoded, strict=True))
