"""Batches from a file that the user gives: text, or token ids that are ready."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import import_extra
from rankscope.checkpoints.source import refuse_special
from rankscope.checkpoints.tokenizer import tokenizer_files
from rankscope.core import InputError
from rankscope.scope.choices import ACCEPTED

ROWS = 8
TOKENS = 128


def read_batches(path: str | Path, source: Source) -> list[dict[str, Tensor]]:
    """Batches of a few rows from a file: tensors, lists of token ids, or text for the own tokenizer."""
    file = Path(path)
    if file.exists():
        refuse_special(file)
    try:
        if file.suffix == ".safetensors":
            inputs = load_file(file)
        elif file.suffix == ".json":
            return _checked(_from_lists(file), source, file)
        else:
            inputs = {"input_ids": _tokenised(file, source)}
    except (OSError, UnicodeDecodeError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{file}: cannot be read ({reason}). {ACCEPTED}.") from None
    sizes = {len(value) if value.dim() else 0 for value in inputs.values()}
    if len(sizes) != 1 or sizes == {0}:
        raise InputError(f"{file}: every tensor must have the same number of rows, at least 1. {ACCEPTED}.")
    (count,) = sizes
    batches = [
        {name: value[start : start + ROWS] for name, value in inputs.items()}
        for start in range(0, count, ROWS)
    ]
    return _checked(batches, source, file)


def _from_lists(file: Path) -> list[dict[str, Tensor]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({error}). {ACCEPTED}.") from None
    lists = content.get("input_ids") if isinstance(content, dict) else content
    if isinstance(lists, list) and lists and all(_is_token(item) for item in lists):
        lists = [lists]
    if not isinstance(lists, list) or not lists or not all(_is_row(row) for row in lists):
        raise InputError(f"{file}: no lists of token ids. {ACCEPTED}.")
    batches = []
    for _, alike in groupby(lists, key=len):
        same = torch.tensor(list(alike))
        batches += [{"input_ids": same[start : start + ROWS]} for start in range(0, len(same), ROWS)]
    return batches


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(_is_token(item) for item in row)


def _is_token(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and abs(item) < 2**63


def _tokenised(file: Path, source: Source) -> Tensor:
    """Rows of equal length from a text; the tokens of a last row that is not full are left out."""
    text = file.read_text(encoding="utf-8")
    transformers = import_extra("transformers")
    remedy = f"{source.label} holds no tokenizer that loads. Give token ids instead. {ACCEPTED}."
    if source.folder is None or not tokenizer_files(source.folder):
        raise InputError(remedy)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(source.folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError):
        raise InputError(remedy) from None
    tokens = torch.tensor(tokenizer(text, verbose=False)["input_ids"], dtype=torch.long)
    if len(tokens) < 2:
        raise InputError(f"{file}: {len(tokens)} tokens of text are too few to measure a loss on. Give more.")
    length = int(min(TOKENS, _positions(source), len(tokens)))
    return tokens[: len(tokens) // length * length].reshape(-1, length)


def _positions(source: Source) -> float:
    """How many tokens a row may have; no limit where the configuration names none."""
    config = source.config or {}
    known = [config[name] for name in ("max_position_embeddings", "n_positions") if name in config]
    return min(known, default=math.inf)


def _checked(batches: list[dict[str, Tensor]], source: Source, file: Path) -> list[dict[str, Tensor]]:
    """Refuse tokens that the model has no embedding or no position for, which it would answer with a crash."""
    size = (source.config or {}).get("vocab_size")
    for batch in batches:
        tokens = batch.get("input_ids")
        if tokens is None:
            continue
        if tokens.is_floating_point() or tokens.dim() != 2:
            raise InputError(f"{file}: input_ids are whole numbers, rows × tokens. {ACCEPTED}.")
        if tokens.shape[1] > (most := _positions(source)):
            raise InputError(
                f"{file}: rows of {tokens.shape[1]} tokens, and the model takes {most}. Cut them."
            )
        if tokens.shape[1] < 2 and "labels" not in batch:
            raise InputError(
                f"{file}: a row of one token has nothing to predict. Give rows of at least 2 tokens."
            )
        if isinstance(size, int) and len(strange := tokens[(tokens < 0) | (tokens >= size)]):
            raise InputError(
                f"{file}: token id {strange[0]} is not in 0 … {size - 1}, the vocabulary of {source.label}. "
                "Tokenise the data for this model."
            )
    return batches


def measured_on(batches: Sequence[Mapping[str, Tensor]]) -> str:
    """What a loss is measured on, counted: tokens or, where the inputs are none, labels."""
    if "input_ids" in batches[0]:
        return f"{sum(batch['input_ids'].numel() for batch in batches)} tokens"
    return f"{sum(batch['labels'].numel() for batch in batches)} labels"
