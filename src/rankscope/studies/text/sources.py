"""Real rows by name: MiniLM's word vectors, its sentence embeddings and token states, digits; or a matrix in a file."""

import json
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from torch import Tensor
from torch.nn.functional import normalize

from rankscope.core import InputError
from rankscope.scope.rows import open_rows
from rankscope.studies.real.assets import model_folder
from rankscope.studies.real.sentences import Reviews, fresh_encoder, padded, split

WORDS, SENTENCES, DIGITS, STATES = "words", "sentences", "digits", "layer "
"""Names of sources; "layer 3" has the states of tokens that layer 3 reads."""

SAMPLE, BATCH, LAYERS = 1600, 50, 6
"""Sentences that are embedded, how many at a time, and MiniLM's layers."""

Rows = Float[Tensor, "row dim"]


@cache
def rows_of(source: str) -> Rows:
    """All rows of a source."""
    if source == WORDS:
        return _words()
    if source == DIGITS:
        from sklearn.datasets import load_digits

        pixels = torch.from_numpy(load_digits().data).float()
        return pixels[:, pixels.std(0) > 0]
    if source == SENTENCES:
        return _states()[0][-1]
    if source.startswith(STATES):
        return _states()[0][int(source.removeprefix(STATES))]
    if source.endswith((".npy", ".safetensors", ".parquet")):
        return torch.from_numpy(np.concatenate([part for _, part in open_rows(source).blocks()]))
    raise InputError(
        f"No source {source!r}: take words, sentences, digits, layer 0 … layer 5, or the path of a matrix."
    )


def groups_of(source: str) -> Int[Tensor, " row"] | None:
    """Which rows are held out together: the tokens of one sentence; None where every row is by itself."""
    return _states()[1] if source.startswith(STATES) else None


def _words() -> Rows:
    """Vectors of the vocabulary without special and unused tokens, whose names start with a bracket."""
    folder = model_folder()
    assert folder is not None
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    places = [place for word, place in vocabulary.items() if not word.startswith("[")]
    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        vectors: Rows = weights.get_tensor("embeddings.word_embeddings.weight")
    return vectors[sorted(places)]


@cache
@torch.no_grad()
def _states() -> tuple[list[Rows], Int[Tensor, " token"]]:
    """Token states before every layer, and after the last the embeddings of whole sentences, of a sample of the rated ones.

    Beside them, the number of every token's sentence.
    """
    chosen = sorted(
        split(Reviews(longest=64, test=SAMPLE, half=1), seed=0)[0], key=lambda one: len(one.tokens)
    )
    encoder = fresh_encoder(LAYERS)
    states: list[list[Tensor]] = [[] for _ in range(LAYERS + 1)]
    for start in range(0, len(chosen), BATCH):
        inputs = padded(chosen[start : start + BATCH], "cpu").inputs
        hidden = encoder(**inputs, output_hidden_states=True).hidden_states
        mask = inputs["attention_mask"].bool()
        for layer in range(LAYERS):
            states[layer].append(hidden[layer][mask])
        weight = mask.unsqueeze(-1).float()
        states[LAYERS].append(normalize((hidden[-1] * weight).sum(1) / weight.sum(1), dim=-1))
    lengths = torch.tensor([len(one.tokens) for one in chosen])
    return [torch.cat(parts) for parts in states], torch.arange(len(chosen)).repeat_interleave(lengths)
