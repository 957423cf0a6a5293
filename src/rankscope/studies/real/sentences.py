"""all-MiniLM-L6-v2 fine-tuned as a whole on how well a review was rated."""

import copy
import json
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import nn

from rankscope.checkpoints import open_source
from rankscope.checkpoints.modules import import_extra
from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.studies.real.assets import model_folder, reviews
from rankscope.studies.real.training import HALVES, Batch, FineTune, Trial, permuted, shuffled, with_head

TEST_BATCH = 256
_BUILDING = threading.Lock()


class Reviews(Config):
    """Movie-review snippets of at most `longest` tokens, in equally many of `classes` by their rating.

    What is rated between ±`least_rating` is left out.

    test, half   how many are held out, and how many each half has
    permuted     whether the labels are dealt out anew among the sentences that are trained on
    """

    longest: int = Field(ge=4, le=512)
    test: int = Field(ge=1)
    half: int = Field(ge=1)
    least_rating: float = Field(default=1.0, gt=0)
    classes: int = Field(default=2, ge=2, le=8)
    permuted: bool = False


class MiniLm(Config):
    """The first `layers` of the encoder, mean pooling, and a random linear head."""

    layers: int = Field(default=6, ge=1, le=6)


class Sentence(NamedTuple):
    """Token ids and the class."""

    tokens: list[int]
    label: int


def fresh_encoder(layers: int) -> Any:
    """The published encoder with its first `layers`, a copy of its own for the caller."""
    with _BUILDING:
        return copy.deepcopy(_published(layers))


def prepare(task: Reviews, model: MiniLm, train: FineTune, seed: int, half: int, device: str) -> Trial:
    """The published encoder under a new head, one half of the training sentences, and those held out."""
    held_out, training = split(task, seed)
    if task.permuted:
        labels = permuted(torch.tensor([sentence.label for sentence in training]), seed).tolist()
        training = [Sentence(one.tokens, label) for one, label in zip(training, labels, strict=True)]
    chosen = training[half * task.half :][: task.half]
    return Trial(
        with_head(fresh_encoder(model.layers), task.classes, seed, device),
        (padded(sentences, device) for sentences in shuffled(chosen, train.batch, seed)),
        _by_length(chosen[: task.test], device),
        _by_length(held_out, device),
    )


def split(task: Reviews, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """The held-out sentences and those of both halves, drawn anew for every seed; one that occurs twice counts once."""
    once = {
        tuple(tokens): (rating, tokens)
        for rating, tokens in _tokenised()
        if abs(rating) >= task.least_rating and len(tokens) <= task.longest
    }
    ratings = torch.tensor([rating for rating, _ in once.values()], dtype=torch.float64)
    bounds = ratings.quantile(torch.arange(1, task.classes, dtype=torch.float64) / task.classes)
    labels = torch.bucketize(ratings, bounds).tolist()
    fit = [Sentence(tokens, label) for (_, tokens), label in zip(once.values(), labels, strict=True)]
    order = torch.randperm(len(fit), generator=stream(seed, "reviews")).tolist()
    chosen = [fit[place] for place in order]
    return chosen[: task.test], chosen[task.test :][: HALVES * task.half]


def _by_length(sentences: Sequence[Sentence], device: str) -> list[Batch]:
    """Batches of sentences of about one length."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.tokens))
    return [
        padded(ordered[start : start + TEST_BATCH], device) for start in range(0, len(ordered), TEST_BATCH)
    ]


def padded(sentences: Sequence[Sentence], device: str) -> Batch:
    """A batch of sentences, padded to the longest of them."""
    rows = [torch.tensor(sentence.tokens) for sentence in sentences]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    labels = torch.tensor([sentence.label for sentence in sentences])
    return Batch({"input_ids": tokens.to(device), "attention_mask": mask.to(device)}, labels.to(device))


@cache
def _published(layers: int) -> Any:
    """Built from its configuration and filled from its file: no state of the library is touched, so threads may."""
    transformers = import_extra("transformers")
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
