"""A PEFT adapter from two checkpoints: written whole or not at all, and loaded again before it counts."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from rankscope.checkpoints.modules import Home, import_extra, refuse_unfilled, skeleton
from rankscope.checkpoints.view import Model
from rankscope.core import InputError, RankscopeError, plain_errors
from rankscope.core.files import write_atomic
from rankscope.linalg.decompose import top_factors
from rankscope.scope.adapter_config import adapter_config
from rankscope.scope.fates import Fate, Fates, Profile, TensorFate, decide_fates
from rankscope.scope.fidelity import Fidelity, measure_fidelity
from rankscope.scope.rules import ranks_by
from rankscope.scope.updates import (
    BaseRounding,
    TensorProgress,
    UpdateScope,
    difference,
    measure_updates,
    row_name,
)

PREFIX = "base_model.model."


@dataclass(frozen=True)
class Adapter:
    """What was written, how much of the update it holds, and how near the tuned model it comes."""

    path: Path
    config: Mapping[str, Any]
    fates: Fates
    fidelity: Fidelity | None


@dataclass(frozen=True)
class AdapterDraft:
    """An adapter before it is written: the fate of every tensor, and how PEFT will be told."""

    scope: UpdateScope
    fates: Fates
    config: Mapping[str, Any]

    @property
    def parameters(self) -> tuple[int, int]:
        """How many numbers it will hold, in factors and in modules that are kept whole; tied copies aside."""
        sizes = self.scope.table.set_index("name")
        factors = whole = 0
        for item in self.fates.items:
            if item.fate == Fate.DECOMPOSED:
                sides = sum(int(side) for side in str(sizes.loc[row_name(item.pair), "shape"]).split(" × "))
                factors += (self.config["r"] if self.fates.profile == Profile.PORTABLE else item.rank) * sides
            elif item.fate == Fate.WHOLE:
                whole += int(str(sizes.loc[row_name(item.pair), "parameters"]))
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
    scope = measure_updates(
        base_model,
        model,
        revision=revision,
        include_regex=include_regex,
        exclude_regex=exclude_regex,
        base_rounding=base_rounding,
        resume_path=resume_path,
        device=device,
        progress=progress,
    )
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
    tensors = adapter_tensors(draft, device=device, progress=progress)
    with written_whole(out) as folder:
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        fidelity = measure_fidelity(draft.scope.base, draft.scope.tuned, folder, fates) if verify else None
        (folder / "README.md").write_text(_readme(config, fates, fidelity), encoding="utf-8")
    return Adapter(out, config, fates, fidelity)


def refuse_existing(out: Path) -> None:
    """Nothing that is there is written over."""
    if out.exists():
        raise InputError(f"{out} exists. Give another out_path, or remove it first.", argument="out_path")


def adapter_tensors(
    draft: AdapterDraft, *, device: str = "cpu", progress: TensorProgress | None = None
) -> dict[str, Tensor]:
    """Every tensor of the adapter under the key that PEFT expects, and no other."""
    fates, base, tuned, config = draft.fates, draft.scope.base, draft.scope.tuned, draft.config
    model = skeleton(base)
    shapes = {name: model.get_parameter(name).shape for name in fates.parameter_ranks}
    expected, homes = _expected(model, config)
    factors = _all_factors(draft, device, progress)
    tensors: dict[str, Tensor] = {}
    for item in fates.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D):
        rank = config["rank_pattern"].get("^" + re.escape(item.module), config["r"])
        _put(tensors, item.module, *factors[row_name(item.pair)], rank)
    for name, rank in fates.parameter_ranks.items():
        pieces = [item for item in fates.items if item.fate == Fate.DECOMPOSED and item.parameter == name]
        plain = pieces[0].expert is None
        left, right = (
            factors[row_name(pieces[0].pair)]
            if plain
            else _expert_factors(factors, pieces, shapes[name], rank)
        )
        tensors[f"{homes[name]}.lora_A.weight"] = right
        tensors[f"{homes[name]}.lora_B.weight"] = left
    for item in fates.lora_biases:
        before, after = difference(base, tuned, item.pair)
        tensors[f"{PREFIX}{item.module}.lora_B.bias"] = after - before
    owners = {item.parameter: item.pair.name for item in fates.items}
    for item in fates.items:
        if item.module in fates.whole_modules and item.pair.status != "tied":
            tensors[PREFIX + item.parameter] = tuned.tensor(item.pair.name)
    for alias, source in fates.ties.items():
        tensors[PREFIX + alias] = tuned.tensor(owners[source]).clone()
    for key, shape in expected.items():
        if key not in tensors and ".lora_" in key:
            tensors[key] = torch.zeros(shape)
        elif key not in tensors and (own := owners.get(key.removeprefix(PREFIX))):
            tensors[key] = (tuned if own in tuned.tensors else base).tensor(own)  # a name that ends alike
    strange = sorted(tensors.keys() ^ expected.keys())
    if strange:
        raise RankscopeError(
            f"PEFT and the adapter disagree on {strange[0]} ({len(strange)} in all): nothing was written."
        )
    return {key: value.contiguous() for key, value in sorted(tensors.items())}


def _all_factors(
    draft: AdapterDraft, device: str, progress: TensorProgress | None
) -> dict[str, tuple[Tensor, Tensor]]:
    items = draft.fates.having(Fate.DECOMPOSED, Home.LINEAR, Home.CONV1D, Home.EXPERTS, Home.PARAMETER)
    factors = {}
    for done, item in enumerate(items):
        factors[row_name(item.pair)] = _factors(draft, item, device)
        if progress is not None:
            progress(row_name(item.pair), done + 1, len(items))
    return factors


def _factors(draft: AdapterDraft, item: TensorFate, device: str) -> tuple[Tensor, Tensor]:
    """Factors of one update with the singular values shared out evenly between both sides."""
    scope = draft.scope
    before, after = (value.to(device) for value in difference(scope.base, scope.tuned, item.pair))
    update = (after - before).float()
    if item.slot is not None and item.slot.transposed:
        update = update.T
    found = top_factors(update, item.rank, spectrum=scope.spectra[row_name(item.pair)])
    size = torch.linalg.vector_norm(found.right, dim=1).clamp_min(torch.finfo(update.dtype).tiny).sqrt()
    return (found.left * size).cpu(), (found.right / size[:, None]).cpu()


def _put(tensors: dict[str, Tensor], module: str, left: Tensor, right: Tensor, rank: int) -> None:
    pad = rank - right.shape[0]
    tensors[f"{PREFIX}{module}.lora_A.weight"] = torch.nn.functional.pad(right, (0, 0, 0, pad))
    tensors[f"{PREFIX}{module}.lora_B.weight"] = torch.nn.functional.pad(left, (0, pad))


def _expert_factors(
    factors: Mapping[str, tuple[Tensor, Tensor]], pieces: list[TensorFate], shape: torch.Size, rank: int
) -> tuple[Tensor, Tensor]:
    """Factors of all experts in PEFT's packing; gate and up, apart on disk, take ranks of their own."""
    experts, rows, columns = shape
    if pieces[0].slot and pieces[0].slot.transposed:
        rows, columns = columns, rows
    left, right = torch.zeros(rows, rank, experts), torch.zeros(experts, rank, columns)
    filled: Counter[int] = Counter()
    for item in pieces:
        number = item.expert
        assert number is not None
        b, a = factors[row_name(item.pair)]
        start = rows * item.slot.part // item.slot.parts if item.slot else 0
        place = slice(filled[number], filled[number] + item.rank)
        left[start : start + b.shape[0], place, number] = b
        right[number, place] = a
        filled[number] += item.rank
    return left.reshape(rows, rank * experts), right.reshape(experts * rank, columns)


def _expected(model: Any, config: Mapping[str, Any]) -> tuple[dict[str, torch.Size], dict[str, str]]:
    """The keys and shapes that PEFT itself would save, and where it keeps each fused parameter."""
    peft = import_extra("peft")
    own = copy.deepcopy(dict(config))  # PEFT edits the lists it is given
    del own["peft_type"]
    settings = peft.LoraConfig(**own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        injected = peft.get_peft_model(model, settings, low_cpu_mem_usage=True)
        state = peft.get_peft_model_state_dict(injected, save_embedding_layers=False)
    homes = {}
    for path, module in injected.named_modules():
        if type(module).__name__ == "ParamWrapper":
            plain = path.removeprefix(PREFIX).replace(".base_layer", "")
            homes[f"{plain}.{module.parameter_name}"] = path
    return {key: value.shape for key, value in state.items()}, homes


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
