"""all-MiniLM-L6-v2 fine-tuned as a whole on the sign of a review's rating."""

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
from rankscope.studies.real.training import CLASSES, Batch, FineTune, Trial, shuffled, with_head

TEST_BATCH = 64
_BUILDING = threading.Lock()


class Reviews(Config):
    """Movie-review snippets of at most `longest` tokens; positive or negative, what is rated between ±1 left out.

    test, train   how many are held out, and how many of the others are trained on (all of them if not given)
    """

    longest: int = Field(ge=4, le=512)
    test: int = Field(ge=1)
    train: int | None = Field(default=None, ge=1)
    least_rating: float = Field(default=1.0, gt=0)


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


def prepare(task: Reviews, model: MiniLm, train: FineTune, seed: int, device: str) -> Trial:
    """The published encoder under a new head, the training sentences, and those held out."""
    training, held_out = split(task, seed)
    held_out.sort(key=lambda sentence: len(sentence.tokens))
    return Trial(
        with_head(fresh_encoder(model.layers), CLASSES, seed, device),
        (padded(sentences, device) for sentences in shuffled(training, train.batch, seed)),
        [
            padded(held_out[start : start + TEST_BATCH], device)
            for start in range(0, len(held_out), TEST_BATCH)
        ],
    )


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
