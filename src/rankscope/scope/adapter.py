"""A PEFT adapter from two checkpoints: written whole or not at all, and loaded again before it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rankscope.checkpoints.modules import import_extra, refuse_unfilled, skeleton
from rankscope.checkpoints.opening import Model
from rankscope.core import InputError, plain_errors
from rankscope.core.files import write_atomic
from rankscope.scope.adapter_config import adapter_config
from rankscope.scope.adapter_tensors import AdapterTensors
from rankscope.scope.choices import BaseRounding, Profile
from rankscope.scope.fates import Fate, Fates, decide_fates
from rankscope.scope.fidelity import Fidelity, measure_fidelity
from rankscope.scope.lora_source import open_both
from rankscope.scope.pairs import row_name
from rankscope.scope.rules import ranks_by, sides
from rankscope.scope.updates import Filters, TensorProgress, UpdateScope, measure_sources


@dataclass(frozen=True)
class Adapter:
    """What was written, how much of the update it holds, and how near the tuned model it comes."""

    path: Path
    config: Mapping[str, Any]
    fates: Fates
    fidelity: Fidelity | None


@dataclass(frozen=True)
class AdapterDraft:
    """An adapter before it is written: the fate of every tensor, and how PEFT is configured for it."""

    scope: UpdateScope
    fates: Fates
    config: Mapping[str, Any]

    @property
    def parameters(self) -> tuple[int, int]:
        """How many numbers it will hold, in factors and in modules that are kept whole; tied copies aside."""
        of_rank, sizes = sides(self.scope), self.scope.table.set_index("name")["parameters"]
        factors = whole = 0
        for item in self.fates.items:
            name = row_name(item.pair)
            if item.fate == Fate.DECOMPOSED:
                rank = self.config["r"] if self.fates.profile == Profile.PORTABLE else item.rank
                factors += rank * of_rank[name]
            elif item.fate == Fate.WHOLE:
                whole += int(sizes[name])
        return factors, whole

    def size_sentence(self) -> str:
        """How large it will be."""
        factors, whole = self.parameters
        return (
            f"The adapter has {factors:,} numbers in factors and {whole:,} kept whole: "
            f"{4 * (factors + whole) / 1e6:,.2f} MB in float32."
        )


def export_adapter(
    base_model: Model,
    model: Model,
    out_path: str | Path,
    *,
    rule: str = "energy@0.95",
    max_rank: int | None = None,
    profile: Profile = Profile.EXACT,
    include_regex: str | None = None,
    exclude_regex: str | None = None,
    base_rounding: BaseRounding = BaseRounding.AUTO,
    revision: str | None = None,
    resume_path: str | Path | None = None,
    verify: bool = True,
    device: str = "cpu",
    progress: TensorProgress | None = None,
) -> Adapter:
    """Write what training added as a PEFT adapter, load it on the base, and measure what is lost.

    Args:
        base_model: the model before training: a folder, a file or a hub id.
        model: the model after training.
        out_path: the adapter's folder, which must not exist yet.
        rule: what decides the ranks, as "energy@0.95", "signal", "rank=8", "budget=100000" or "full".
        max_rank: no rank above this one.
        profile: exact holds all that PEFT can; portable has one rank and linear layers only.
        include_regex: only tensors whose name holds a match.
        exclude_regex: no tensor whose name holds a match.
        base_rounding: how the rounding of the base counts in the noise that `signal` must pass.
        revision: of hub ids.
        resume_path: a folder that keeps what is measured; after an interruption it is not measured again.
        verify: load the adapter on the base, run both models, and measure the difference.
        device: where to compute.
        progress: is called with the tensor's name, how many are done, and how many there are.

    Returns:
        An `Adapter`: where it is, and its `fidelity`.

    Example:
        >>> import rankscope
        >>> rankscope.export_adapter("base", "tuned", "/")
        Traceback (most recent call last):
        rankscope.core.errors.InputError: / exists. Give another out_path, or remove it first.
    """
    import_extra("peft")
    refuse_existing(Path(out_path))
    base, tuned = open_both(base_model, model, revision=revision)
    filters = Filters(include_regex, exclude_regex, base_rounding)
    scope = measure_sources(base, tuned, filters, resume_path=resume_path, device=device, progress=progress)
    draft = draft_adapter(scope, rule=rule, max_rank=max_rank, profile=profile)
    return write_adapter(draft, out_path, verify=verify, device=device, progress=progress)


def draft_adapter(
    scope: UpdateScope,
    *,
    rule: str = "energy@0.95",
    max_rank: int | None = None,
    profile: Profile = Profile.EXACT,
) -> AdapterDraft:
    """What an adapter of the measured updates will hold."""
    if scope.summary["identical"]:
        raise InputError(
            f"{scope.base.label} and {scope.tuned.label} are identical where compared: nothing to write."
        )
    shape = skeleton(scope.base)
    for source in (scope.base, scope.tuned):
        refuse_unfilled(source, shape if source is scope.base else skeleton(source))
    ranks = ranks_by(scope, rule, max_rank=max_rank)
    fates = decide_fates(scope, ranks, model=shape, profile=profile)
    return AdapterDraft(scope, fates, adapter_config(fates, scope.base, shape))


def write_adapter(
    draft: AdapterDraft,
    out_path: str | Path,
    *,
    verify: bool = True,
    device: str = "cpu",
    progress: TensorProgress | None = None,
) -> Adapter:
    """Write a draft whole or not at all, after loading it on the base where it is to be verified."""
    import_extra("peft")
    out = Path(out_path)
    refuse_existing(out)
    config, fates = draft.config, draft.fates
    tensors = AdapterTensors(draft.scope, fates, config, device, progress)
    with written_whole(out) as folder:
        tensors.write(folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        fidelity = measure_fidelity(draft.scope.base, draft.scope.tuned, folder, fates) if verify else None
        (folder / "README.md").write_text(_readme(config, fates, fidelity), encoding="utf-8")
    return Adapter(out, config, fates, fidelity)


def refuse_existing(out: Path) -> None:
    """Nothing that is there is written over."""
    if out.exists():
        raise InputError(f"{out} exists. Give another out_path, or remove it first.", argument="out_path")


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """A draft folder that becomes `out` at the end, or vanishes."""
    with plain_errors(out, "Nothing was written.", SafetensorError), write_atomic(out) as draft:
        draft.mkdir()
        yield draft


def _readme(config: Mapping[str, Any], fates: Fates, fidelity: Fidelity | None) -> str:
    lines = [
        "---",
        "library_name: peft",
        f"base_model: {config['base_model_name_or_path']}",
        "---",
        "# Adapter extracted by Rankscope",
        "",
        f"Profile {fates.profile}, rank {config['r']} where no other is given, scale 1 (alpha = r).",
        "",
        "| update | tensors | share of ‖ΔW‖² | kept |",
        "|---|---|---|---|",
    ]
    for row in fates.coverage.to_dict("records"):
        lines.append(f"| {row['fate']} | {row['tensors']} | {row['share']:.4%} | {row['kept_share']:.4%} |")
    if any(item.pair.status == "resized" for item in fates.items):
        lines += ["", "The vocabulary was resized: call resize_token_embeddings on the base before loading."]
    if fidelity is not None:
        lines += ["", fidelity.sentence()]
    skipped = [item for item in fates.items if item.fate == Fate.SKIPPED]
    lines += ["", *(f"- left out: {row_name(item.pair)} ({item.reason})" for item in skipped)]
    return "\n".join(lines) + "\n"
