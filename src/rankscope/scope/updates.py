"""What training added: ΔW = tuned − base of every tensor, its ranks, and what rank each rule asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rankscope.checkpoints import Source, open_source
from rankscope.checkpoints.view import Model
from rankscope.core import InputError
from rankscope.linalg.decompose import singular_values, squared_norm
from rankscope.linalg.noise import observed_noise, rounding_noise, seen_share, stored_precision
from rankscope.measure.updates import ENERGIES, measured_ranks
from rankscope.scope.journal import Journal

TensorProgress = Callable[[str, int, int], None]
"""told the tensor's name, how many are done and how many there are"""

COLUMNS = (
    "name",
    "shape",
    "parameters",
    "status",
    "base_energy",
    "energy",
    "effective_rank",
    "stable_rank",
    *(f"energy@{share:.2f}" for share in ENERGIES),
    "signal_rank",
    "gavish_donoho_rank",
    "base_rounding",
    "noise_edge",
    "largest",
)

_EMBEDDINGS = tuple(
    f"{name}.weight" for name in ("embed_tokens", "wte", "word_embeddings", "embed_in", "shared")
)


class BaseRounding(StrEnum):
    """How much of an update's noise is the rounding of the base model."""

    AUTO = "auto"
    """as much as the update shows"""
    COUNTED = "counted"
    """all of it: both models were rounded when they were saved"""
    EXACT = "exact"
    """none: training started from the stored base itself"""


@dataclass(frozen=True)
class TensorPair:
    """One tensor in both checkpoints, or why it is not in both."""

    name: str
    status: str
    """paired, resized, added, removed, tied, unselected or not float"""
    base_name: str | None = None
    expert: int | None = None


@dataclass(frozen=True)
class UpdateScope:
    """Two checkpoints and what was measured: a row per tensor, a summary, and the singular values of every matrix."""

    base: Source
    tuned: Source
    pairs: Sequence[TensorPair]
    table: pd.DataFrame
    summary: Mapping[str, Any]
    spectra: Mapping[str, Tensor]

    def sentences(self) -> list[str]:
        """The summary in words: what changed, and how many directions it takes."""
        found = self.summary
        statuses = ", ".join(f"{count} {status}" for status, count in found["status"].items())
        lines = [f"{found['tensors']} tensors: {statuses}."]
        if "median" in found:
            middle = found["median"]
            lines.append(
                f"In the median matrix {middle['energy@0.90']:g} directions hold 0.90 of ‖ΔW‖² and {middle['energy@0.99']:g} "
                f"hold 0.99; {middle['signal_rank']:g} stand above rounding. The largest update is that of "
                f"{found['largest_update']}."
            )
        return lines


def measure_updates(
    base_model: Model,
    model: Model,
    *,
    include_regex: str | None = None,
    exclude_regex: str | None = None,
    revision: str | None = None,
    base_rounding: BaseRounding = BaseRounding.AUTO,
    resume_path: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: TensorProgress | None = None,
) -> UpdateScope:
    """The update of every tensor from `base_model` to `model`, one pair in memory at a time.

    With `resume_path`, what is measured is kept in that folder and not measured again after an interruption.
    """
    base, tuned = open_source(base_model, revision=revision), open_source(model, revision=revision)
    pairs = list(pair_up(base, tuned, include_regex, exclude_regex))
    filters = (include_regex, exclude_regex, base_rounding)
    journal = (
        Journal() if resume_path is None else Journal.open(resume_path, fingerprint(base, tuned, filters))
    )
    rows, spectra = [], {}
    for done, pair in enumerate(pairs):
        key = row_name(pair)
        if key not in journal:
            journal.record(key, _measure(base, tuned, pair, base_rounding, device))
        row, values = journal.recall(key)
        rows.append(row)
        if values is not None:
            spectra[key] = values
        if progress is not None:
            progress(key, done + 1, len(pairs))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return UpdateScope(base, tuned, pairs, table, summarise(table), spectra)


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


def _measure(
    base: Source, tuned: Source, pair: TensorPair, base_rounding: BaseRounding, device: str | torch.device
) -> tuple[dict[str, Any], Tensor | None]:
    info = tuned.tensors.get(pair.name) or base.info(pair.name)
    row: dict[str, Any] = {
        "name": row_name(pair),
        "shape": " × ".join(str(size) for size in (info.shape if pair.expert is None else info.shape[1:])),
        "parameters": torch.Size(info.shape if pair.expert is None else info.shape[1:]).numel(),
        "status": pair.status,
    }
    if pair.status == "added" and info.dtype is not None:
        return {**row, "energy": squared_norm(tuned.tensor(pair.name))}, None
    if pair.status == "not float" and pair.base_name is not None:
        before, after = base.read(pair.base_name), tuned.read(pair.name)
        same = before.dtype == after.dtype and torch.equal(before, after)
        return {**row, "status": "identical" if same else pair.status}, None
    comparable = pair.base_name is not None and pair.status in ("paired", "resized", "unselected")
    if not comparable or (pair.status == "unselected" and info.dtype is None):
        return row, None
    before, after = (value.to(device) for value in difference(base, tuned, pair))
    row["base_energy"] = squared_norm(before)
    if before.dim() != 2 or min(before.shape) < 2 or pair.status == "unselected":
        row["energy"] = squared_norm(after - before)
        row["status"] = _changed(pair.status, row["energy"])
        return row, None
    kinds = [
        stored_precision(value, info.dtype or torch.float32)
        for value, info in ((before, base.info(str(pair.base_name))), (after, info))
    ]
    noises = [
        rounding_noise(value, kind, _scale(source, name, pair.expert, value))
        for value, kind, source, name in (
            (before, kinds[0], base, str(pair.base_name)),
            (after, kinds[1], tuned, pair.name),
        )
    ]
    row["energy"] = squared_norm(after - before)
    row["status"] = _changed(pair.status, row["energy"])
    if row["energy"] == 0:
        return row, None
    values = singular_values(after - before)
    fixed = {BaseRounding.COUNTED: 1.0, BaseRounding.EXACT: 0.0}
    share = fixed[base_rounding] if base_rounding in fixed else seen_share(values, *noises)
    noise = observed_noise(noises[0] * share + noises[1], before, after)
    del before, after
    values = values.cpu()
    found = {"base_rounding": share, "noise_edge": noise.edge(), "largest": float(values[0])}
    return row | measured_ranks(values, noise) | found, values.float()


def _scale(source: Source, name: str, expert: int | None, value: Tensor) -> Tensor | None:
    """The scale of an 8-bit tensor, beside the value that was read."""
    scale = source.scale(name)
    if scale is None:
        return None
    return (scale if expert is None else scale[expert])[: len(value)].to(value.device)


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """How much changed, where, and how many directions it takes."""
    matrices = table.dropna(subset=["effective_rank"])
    total = float(table["energy"].sum())
    summary: dict[str, Any] = {
        "tensors": len(table),
        "status": {str(key): int(count) for key, count in table["status"].value_counts().items()},
        "energy": total,
        "identical": float(table[table["status"] != "unselected"]["energy"].sum()) == 0.0,
    }
    if len(matrices):
        ranks = ["effective_rank", "signal_rank", *(f"energy@{share:.2f}" for share in ENERGIES)]
        summary["median"] = {name: float(matrices[name].median()) for name in ranks}
        summary["largest_update"] = str(table.sort_values("energy", na_position="first")["name"].iloc[-1])
    return summary


def _changed(status: str, energy: float) -> str:
    if status != "paired":
        return status
    return "changed" if energy > 0 else "identical"


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


def fingerprint(base: Source, tuned: Source, asked: tuple[str | None, ...]) -> str:
    """What a resumed run must find unchanged: the files, the times they were written, and what was asked for."""
    stamps = []
    for source in (base, tuned):
        if source.folder is None:
            raise InputError(f"resume_path needs models on disk; {source.label} is in memory.")
        files = sorted(path for path in source.folder.iterdir() if path.is_file())
        stamps.append((source.label, [(path.name, path.stat().st_mtime_ns) for path in files]))
    return repr((stamps, tuple(map(str, asked))))
