"""A small ViT on handwritten digits: trained on one bit of the digit, then fine-tuned on the others.

The images of 0 to 7 (Alpaydin and Kaynak 1998, as scikit-learn carries them) have eight kinds and three bits. The highest,
whether the digit is at least 4, is what the ViT learns first. The lowest 1, 2 or 3 are the 2, 4 or 8 classes that it is
fine-tuned on, with all kinds or with the first few: kinds and classes vary apart, the number of images does not.
"""

import copy
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from rankscope.checkpoints.modules import import_extra
from rankscope.core import Config
from rankscope.core.streams import stream
from rankscope.studies.real.training import (
    HALVES,
    Batch,
    FineTune,
    Optimizer,
    Trial,
    fine_tune,
    permuted,
    shuffled,
    with_head,
)

KINDS = 8
"""Digits from 0 on that are used, a power of two."""

PATCH = 2
"""Pixels of a patch, either way."""

PRETRAINING_RATE = 2e-3
_BUILDING = threading.Lock()


class Digits(Config):
    """The remainder modulo `classes` of the first `kinds` digits.

    test, half   how many images of these kinds are held out, from pretraining too, and how many each half has
    permuted     whether the labels are dealt out anew among the images that are trained on
    """

    test: int = Field(ge=1)
    half: int = Field(ge=1)
    kinds: int = Field(default=KINDS, ge=2, le=KINDS)
    classes: int = Field(default=2, ge=2, le=KINDS)
    permuted: bool = False


class SmallVit(Config):
    """A ViT on patches of 2 × 2 pixels: 16 tokens, and the one that ViTs have in front."""

    dim: int = Field(default=64, ge=4)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=1)


def prepare(task: Digits, model: SmallVit, train: FineTune, seed: int, half: int, device: str) -> Trial:
    """The pretrained ViT under a new head, one half of the training images, and those held out."""
    images, digits = _images()
    held_out, training = split(task, seed)
    labels = digits % task.classes
    if task.permuted:
        labels[training] = permuted(labels[training], seed)
    chosen = training[half * task.half :][: task.half]
    encoder = copy.deepcopy(_pretrained(task.test, model, train.pretraining, seed, device))
    return Trial(
        with_head(encoder, task.classes, seed, device),
        _batches(images[chosen], labels[chosen], train.batch, seed, device),
        [_batch(images[chosen], labels[chosen], device)],
        [_batch(images[held_out], labels[held_out], device)],
    )


def split(task: Digits, seed: int) -> tuple[Int[Tensor, " image"], Int[Tensor, " image"]]:
    """The images of the task's kinds that are held out, and those of both halves."""
    order = _order(seed)
    ours = order[_images()[1][order] < task.kinds]
    return ours[: task.test], ours[task.test :][: HALVES * task.half]


@cache
def _pretrained(test: int, model: SmallVit, steps: int, seed: int, device: str) -> Any:
    """A ViT of random weights after `steps` on whether the digit is in the upper half, by AdamW.

    Whatever the kinds, none of the images that may be held out is among those it sees: the first of the order of each kind.
    """
    encoder = _random(model, seed)
    if steps == 0:
        return encoder
    images, digits = _images()
    order = _order(seed)
    kept_back = torch.cat([order[digits[order] < kinds][:test] for kinds in range(2, KINDS + 1)])
    chosen = order[~torch.isin(order, kept_back)]
    train = FineTune(optimizer=Optimizer.ADAMW, learning_rate=PRETRAINING_RATE, steps=steps, batch=32)
    upper = (digits >= KINDS // 2).long()
    data = _batches(images[chosen], upper[chosen], train.batch, seed, device, "pretraining")
    fine_tune(with_head(encoder, 2, seed, device, "pretraining"), data, train)
    return encoder


def _random(model: SmallVit, seed: int) -> Any:
    """A ViT drawn from the seed: matrices normal of variance one over what a row reads, places as large as patches.

    From the library's own start, at 0.02, so short a training gets nowhere with some seeds.
    """
    transformers = import_extra("transformers")
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=PATCH,
        num_channels=1,
        hidden_size=model.dim,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=model.hidden,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with _BUILDING:
        encoder = transformers.ViTModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if weight.dim() > 1:
                reads = PATCH**2 if name.startswith("embeddings") else weight.shape[1]
                weight.copy_(torch.randn(weight.shape, generator=stream(seed, "vit", name)) / reads**0.5)
    return encoder


def _batches(
    images: Float[Tensor, "sample 1 8 8"],
    labels: Int[Tensor, " sample"],
    size: int,
    seed: int,
    device: str,
    *purpose: str,
) -> Iterator[Batch]:
    groups = shuffled(range(len(labels)), size, seed, *purpose)
    return (_batch(images[group], labels[group], device) for group in groups)


def _batch(images: Float[Tensor, "sample 1 8 8"], labels: Int[Tensor, " sample"], device: str) -> Batch:
    return Batch({"pixel_values": images.to(device)}, labels.to(device))


def _order(seed: int) -> Int[Tensor, " sample"]:
    """The images in the order of one seed."""
    return torch.randperm(len(_images()[1]), generator=stream(seed, "digits"))


@cache
def _images() -> tuple[Float[Tensor, "sample 1 8 8"], Int[Tensor, " sample"]]:
    """The images of the digits used, from −1 to 1, and the digits."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy(found.images).float().unsqueeze(1) / 8 - 1
    digits = torch.from_numpy(found.target).long()
    return images[digits < KINDS], digits[digits < KINDS]
