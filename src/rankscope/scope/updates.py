"""What training added: ΔW = tuned − base of every tensor, its ranks, and the rank that each rule gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.core import InputError
from rankscope.linalg.decompose import singular_values, squared_norm
from rankscope.linalg.factored import Factored
from rankscope.linalg.noise import RoundingNoise, observed_noise, rounding_noise, seen_share, stored_precision
from rankscope.linalg.spectrum import effective_rank, energy_rank, stable_rank
from rankscope.measure.updates import ENERGIES, measured_ranks
from rankscope.scope.choices import BaseRounding
from rankscope.scope.journal import Journal
from rankscope.scope.pairs import TensorPair, difference, pair_up, product_of, row_name

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
    "factor_rank",
)

RESOLVED = 1e-7
"""A singular value below this share of the largest is zero: factors are stored in float32 at best."""


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
        if "factors" in found:
            given = found["factors"]
            least, most = given["least_rank"], given["most_rank"]
            ranks = f"rank {most}" if least == most else f"ranks {least} to {most}"
            lines.append(
                f"{given['matrices']} updates are products of {ranks} and use {given['mean_used']:.0%} of it on average "
                f"(effective over nominal rank): least in {given['least']} ({given['least_used']:.0%}), most in "
                f"{given['most']} ({given['most_used']:.0%})."
            )
        return lines


class Filters(NamedTuple):
    """What decides which tensors are measured, and how."""

    include_regex: str | None = None
    exclude_regex: str | None = None
    base_rounding: BaseRounding = BaseRounding.AUTO


def measure_sources(
    base: Source,
    tuned: Source,
    filters: Filters,
    *,
    resume_path: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: TensorProgress | None = None,
) -> UpdateScope:
    """The update of every tensor, one pair in memory at a time; where `tuned` is a base with a LoRA, by the LoRA's factors.

    With `resume_path`, what is measured is kept in that folder and not measured again after an interruption.
    """
    pairs = list(pair_up(base, tuned, filters.include_regex, filters.exclude_regex))
    journal = (
        Journal() if resume_path is None else Journal.open(resume_path, fingerprint(base, tuned, filters))
    )
    rows, spectra = [], {}
    for done, pair in enumerate(pairs):
        key = row_name(pair)
        if key not in journal.entries:
            journal.record(key, _measure(base, tuned, pair, filters.base_rounding, device))
        row, values = journal.entries[key]
        rows.append(row)
        if values is not None:
            spectra[key] = values
        if progress is not None:
            progress(key, done + 1, len(pairs))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return UpdateScope(base, tuned, pairs, table, summarise(table), spectra)


def _measure(
    base: Source, tuned: Source, pair: TensorPair, base_rounding: BaseRounding, device: str | torch.device
) -> tuple[dict[str, Any], Tensor | None]:
    info = tuned.tensors.get(pair.name) or base.info(pair.name)
    shape = info.shape if pair.expert is None else info.shape[1:]
    row: dict[str, Any] = {
        "name": row_name(pair),
        "shape": " × ".join(map(str, shape)),
        "parameters": math.prod(shape),
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
    return _compare(base, tuned, pair, row, base_rounding, device)


def _compare(
    base: Source,
    tuned: Source,
    pair: TensorPair,
    row: dict[str, Any],
    base_rounding: BaseRounding,
    device: str | torch.device,
) -> tuple[dict[str, Any], Tensor | None]:
    """The row of a tensor that both models have: how much it changed, and in how many directions."""
    if pair.name in tuned.untouched:
        row["base_energy"], row["energy"] = squared_norm(base.tensor(str(pair.base_name))), 0.0
        return {**row, "status": _changed(pair.status, 0.0)}, None
    if pair.status == "paired" and (product := product_of(tuned, pair)) is not None:
        before = base.tensor(str(pair.base_name))
        row["base_energy"] = squared_norm(before if pair.expert is None else before[pair.expert])
        return _measured_product(row, product)
    before, after = (value.to(device) for value in difference(base, tuned, pair))
    row["base_energy"], row["energy"] = squared_norm(before), squared_norm(after - before)
    row["status"] = _changed(pair.status, row["energy"])
    matrix = before.dim() == 2 and min(before.shape) >= 2
    if not matrix or pair.status == "unselected" or row["energy"] == 0:
        return row, None
    noises = [
        _noise(base, str(pair.base_name), pair.expert, before),
        _noise(tuned, pair.name, pair.expert, after),
    ]
    values = singular_values(after - before)
    fixed = {BaseRounding.COUNTED: 1.0, BaseRounding.EXACT: 0.0}
    share = fixed[base_rounding] if base_rounding in fixed else seen_share(values, *noises)
    noise = observed_noise(noises[0] * share + noises[1], before, after)
    del before, after
    values = values.cpu()
    found = {"base_rounding": share, "noise_edge": noise.edge(), "largest": float(values[0])}
    return row | measured_ranks(values, noise) | found, values.float()


def _measured_product(row: dict[str, Any], product: Factored) -> tuple[dict[str, Any], Tensor | None]:
    """The ranks of an update that is known by its factors. No rounding is in it: every value that is not zero is signal."""
    values = Factored(product.left.double(), product.right.double()).spectrum()
    values = values[: min(product.shape)]
    energy = float(values.square().sum())
    row = {**row, "energy": energy, "status": _changed("paired", energy), "factor_rank": len(values)}
    if energy == 0:
        return row, None
    nonzero = int((values > RESOLVED * values[0]).sum())
    found = {
        "effective_rank": float(effective_rank(values)),
        "stable_rank": float(stable_rank(values)),
        **{f"energy@{share:.2f}": int(energy_rank(values, share)) for share in ENERGIES},
        "signal_rank": nonzero,
        "gavish_donoho_rank": nonzero,
        "base_rounding": 0.0,
        "noise_edge": 0.0,
        "largest": float(values[0]),
    }
    return row | found, values.float()


def _noise(source: Source, name: str, expert: int | None, value: Tensor) -> RoundingNoise:
    """The rounding in a value that was read, by the precision and, of an 8-bit tensor, the scale that it was stored with."""
    scale = source.scale(name)
    if scale is not None:
        scale = (scale if expert is None else scale[expert])[: len(value)].to(value.device)
    return rounding_noise(value, stored_precision(value, source.info(name).dtype or torch.float32), scale)


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
    given = matrices.dropna(subset=["factor_rank"])
    if len(given):
        used = (given["effective_rank"] / given["factor_rank"]).set_axis(given["name"])
        summary["factors"] = {
            "matrices": len(given),
            "least_rank": int(given["factor_rank"].min()),
            "most_rank": int(given["factor_rank"].max()),
            "mean_used": float(used.mean()),
            "least": str(used.idxmin()),
            "least_used": float(used.min()),
            "most": str(used.idxmax()),
            "most_used": float(used.max()),
        }
    return summary


def _changed(status: str, energy: float) -> str:
    if status != "paired":
        return status
    return "changed" if energy > 0 else "identical"


def fingerprint(base: Source, tuned: Source, filters: Filters) -> str:
    """What a resumed run must find unchanged: the files, the times they were written, and the options."""
    stamps = []
    for source in (base, tuned):
        if source.folder is None:
            raise InputError(f"resume_path needs models on disk; {source.label} is in memory.")
        files = sorted(path for path in source.folder.iterdir() if path.is_file())
        stamps.append((source.label, [(path.name, path.stat().st_mtime_ns) for path in files]))
    return repr((stamps, tuple(map(str, filters))))
