"""The tensors of two checkpoints in pairs, and what lies between the two of a pair."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.core import InputError
from rankscope.linalg.factored import Factored

_EMBEDDINGS = tuple(
    f"{name}.weight" for name in ("embed_tokens", "wte", "word_embeddings", "embed_in", "shared")
)


@dataclass(frozen=True)
class TensorPair:
    """One tensor in both checkpoints, or why it is not in both."""

    name: str
    status: str
    """paired, resized, added, removed, tied, unselected or not float"""
    base_name: str | None = None
    expert: int | None = None


def pair_up(
    base: Source, tuned: Source, include_regex: str | None = None, exclude_regex: str | None = None
) -> Iterator[TensorPair]:
    """Every tensor of either checkpoint, with what can be done with it."""
    include, exclude = _compiled(include_regex, "include_regex"), _compiled(exclude_regex, "exclude_regex")
    if include is not None and not any(include.search(name) for name in tuned.tensors):
        raise InputError(
            f"include_regex={include_regex!r} matches no tensor of {tuned.label}. "
            f"Names look like {next(iter(tuned.tensors))!r}.",
            argument="include_regex",
        )
    if base.tensors.keys().isdisjoint(tuned.tensors):
        raise InputError(
            f"{base.label} and {tuned.label} have no tensor in common: these are not two states of one model. "
            "Check the base model."
        )
    embedding = _tied_embedding(base)
    for name, info in tuned.tensors.items():
        base_name = name if name in base.tensors else (embedding if _is_output_head(name) else None)
        if name in tuned.aliases:
            yield TensorPair(name, "tied")
        elif (include is not None and not include.search(name)) or (exclude and exclude.search(name)):
            yield TensorPair(name, "unselected", base_name)
        elif base_name is None:
            yield TensorPair(name, "added" if info.dtype else "not float")
        elif info.dtype is None or base.info(base_name).dtype is None:
            yield TensorPair(name, "not float", base_name)
        elif base.info(base_name).shape != info.shape:
            yield TensorPair(name, "resized", base_name)
        elif ".experts." in name and len(info.shape) == 3:
            yield from (TensorPair(name, "paired", base_name, expert) for expert in range(info.shape[0]))
        else:
            yield TensorPair(name, "paired", base_name)
    for name in base.tensors:
        tied_head = _is_output_head(name) and _tied_embedding(tuned) is not None
        if name not in tuned.tensors and name not in base.aliases and not tied_head:
            yield TensorPair(name, "removed", name)


def row_name(pair: TensorPair) -> str:
    """The name of a pair's row: the tensor's, with the expert's number where experts are stacked."""
    return pair.name if pair.expert is None else f"{pair.name}[{pair.expert}]"


def difference(base: Source, tuned: Source, pair: TensorPair) -> tuple[Tensor, Tensor]:
    """The base's tensor and the tuned one's, the rows that both have where the vocabulary was resized."""
    before, after = base.tensor(str(pair.base_name)), tuned.tensor(pair.name)
    if pair.expert is not None:
        return before[pair.expert], after[pair.expert]
    if before.shape != after.shape:
        if not (before.dim() and after.dim()) or before.shape[1:] != after.shape[1:]:
            raise InputError(
                f"{pair.name} is {tuple(before.shape)} in {base.label} and {tuple(after.shape)} in "
                f"{tuned.label}: these are not two states of one model. Check the base model."
            )
        rows = min(len(before), len(after))
        return before[:rows], after[:rows]
    return before, after


def product_of(tuned: Source, pair: TensorPair) -> Factored | None:
    """What was added to a tensor as a product, where the tuned model is known so; None where it is not."""
    if pair.name not in tuned.products:
        return None
    product = tuned.products[pair.name]()
    return product if pair.expert is None else Factored(product.left[pair.expert], product.right[pair.expert])


def _compiled(pattern: str | None, argument: str) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"{argument}={pattern!r} is not a regular expression: {error}.", argument=argument
        ) from None


def _is_output_head(name: str) -> bool:
    return name in ("lm_head.weight", "embed_out.weight", "proj_out.weight")


def _tied_embedding(source: Source) -> str | None:
    """The embedding that serves as output head too, where the checkpoint holds no head of its own."""
    if not (source.config or {}).get("tie_word_embeddings") or any(map(_is_output_head, source.tensors)):
        return None
    return next((name for name in source.tensors if name.endswith(_EMBEDDINGS)), None)
