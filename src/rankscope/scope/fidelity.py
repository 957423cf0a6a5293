"""How near an adapter on its base comes to the tuned model: measured by loading it, not hoped for.

One layer of one model is in memory at a time where the model can be opened so (`by_layers`), else one model.
"""

from __future__ import annotations

import copy
import gc
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import foreign_errors, import_extra, model_class, random_weights
from rankscope.core import InputError, RankscopeError
from rankscope.core.streams import stream
from rankscope.scope.by_layers import open_by_layers, read_parameters
from rankscope.scope.fates import Fate, Fates, TensorFate
from rankscope.scope.pairs import difference, row_name

POOR = 0.5
"""From this share of the base model's own error on, an adapter does not do what it is for."""

ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Fidelity:
    """Relative errors against the tuned model, ‖x − y‖ / ‖y‖."""

    logits_error: float
    """of base plus adapter"""
    base_logits_error: float
    """of the base alone: what the adapter had to make up for"""
    weights: pd.DataFrame
    """per adapted tensor the relative error of base plus adapter, and of the base alone"""
    unexplained: tuple[str, ...] = ()
    """parameters of the running models that differ although the adapter neither holds nor names them"""

    @property
    def is_poor(self) -> bool:
        """Whether the output stays near the base model's own error."""
        return self.logits_error > POOR * self.base_logits_error

    def sentence(self) -> str:
        """The figures in words."""
        worst = float(self.weights["error"].max()) if len(self.weights) else 0.0
        return (
            f"Loaded with peft on the base model: relative error of the output {self.logits_error:.2e} "
            f"(base alone {self.base_logits_error:.2e}), of a weight at most {worst:.2e}."
        )

    def warnings(self) -> list[str]:
        """What whoever uses the adapter must know."""
        found = []
        if self.is_poor:
            found.append(
                f"WARNING: with the adapter the output is off by {self.logits_error:.2e}, and without it by "
                f"{self.base_logits_error:.2e}: it makes up for little of the training. Ask for more rank, or widen the "
                "filters."
            )
        if self.unexplained:
            more = f" and {len(self.unexplained) - 1} more" if len(self.unexplained) > 1 else ""
            found.append(
                f"WARNING: {self.unexplained[0]}{more} differ between the running models, and the adapter does not hold "
                "the change."
            )
        return found


def measure_fidelity(base: Source, tuned: Source, adapter: Path, fates: Fates) -> Fidelity:
    """Load `adapter` on the base in float32 and compare with the tuned model on a fixed batch."""
    goal = _open(tuned)
    given = fixed_batch(goal)
    wanted, vocabulary = _output(goal, given), _vocabulary(goal)
    del goal
    gc.collect()
    start = _open(base)
    if vocabulary != _vocabulary(start):
        start.resize_token_embeddings(vocabulary)
    alone = _relative(_output(start, given), wanted)
    adapted = _adapted(start, adapter)
    named = {item.parameter for item in fates.items if item.fate != Fate.UNCHANGED}
    named |= set(fates.ties)
    inside = tuple(f"{module}." for module in fates.whole_modules)
    strange = [
        name for name in sorted(_changed(base, tuned)) if name not in named and not name.startswith(inside)
    ]
    left = _relative(_output(adapted, given), wanted)
    return Fidelity(left, alone, _weights(adapted, base, tuned, fates), tuple(strange))


def _open(source: Source) -> Any:
    """The running model of `source` in float32: by layers where its file says all of it, else as a whole."""
    layered = open_by_layers(source)
    return load_model(source) if layered is None else layered


def _adapted(start: Any, adapter: Path) -> Any:
    """The base with the adapter on it, loaded by peft; whatever peft says of it is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*fan_in_fan_out.*")
        warnings.filterwarnings("ignore", message=".*lora_bias=True.*")
        warnings.filterwarnings("ignore", message=".*a tied layer is part of the adapter.*")
        # said of fused experts, whose patterns do match: every weight is measured below
        warnings.filterwarnings("ignore", message=".*did not match any targeted module.*")
        try:
            peft = import_extra("peft")
            return peft.PeftModel.from_pretrained(start, str(adapter), low_cpu_mem_usage=True).eval()
        except (UserWarning, RuntimeError, ValueError, KeyError) as error:
            first = str(error).strip().splitlines()[0]
            raise RankscopeError(
                f"The adapter does not load with peft ({first}): nothing was written."
            ) from None


def _changed(base: Source, tuned: Source) -> set[str]:
    """The parameters that both models have and that differ, compared one at a time."""
    readers = [read_parameters(source) for source in (base, tuned)]
    common = readers[0].pieces.keys() & readers[1].pieces.keys()
    return {name for name in common if not torch.equal(*(reader.value(name) for reader in readers))}


def load_model(source: Source, dtype: torch.dtype | None = torch.float32) -> Any:
    """The running model of `source` without gradients, in `dtype` or as it is stored; no weight of it is random."""
    if source.module is not None:
        model = copy.deepcopy(source.module)
        return (model if dtype is None else model.to(dtype)).eval()
    kind, settings = model_class(source)
    with foreign_errors(source.label):
        model, found = kind.from_pretrained(
            str(source.folder) if source.is_plain_folder else None,
            config=settings,
            dtype="auto" if dtype is None else dtype,
            state_dict=None
            if source.is_plain_folder
            else {name: source.value(name) for name in source.tensors},
            output_loading_info=True,
        )
    missing = sorted(found["missing_keys"]) + sorted(str(key) for key in found["mismatched_keys"])
    if missing:
        raise InputError(f"{source.label}: {random_weights(missing)}")
    return model.eval()


def fixed_batch(model: Any) -> dict[str, Tensor]:
    """A batch that fits the model's input, the same in every run."""
    generator = stream(0, "fidelity")
    config, wanted = model.config, model.main_input_name
    images = {}
    vision = getattr(config, "vision_config", config)
    if wanted == "pixel_values" or type(model).__name__ in ("CLIPModel", "SiglipModel"):
        size = vision.image_size
        images = {"pixel_values": torch.randn(2, vision.num_channels, size, size, generator=generator)}
    if wanted == "pixel_values":
        return images
    if wanted == "input_values":
        return {"input_values": torch.randn(2, 4000, generator=generator)}
    tokens = torch.randint(0, _vocabulary(model), (2, 12), generator=generator)
    if wanted == "input_features":
        frames = 2 * config.max_source_positions
        features = torch.randn(2, config.num_mel_bins, frames, generator=generator)
        return {"input_features": features, "decoder_input_ids": tokens}
    if config.is_encoder_decoder:
        return {"input_ids": tokens, "decoder_input_ids": tokens.flip(1)}
    return {"input_ids": tokens, **images}


def _vocabulary(model: Any) -> int:
    try:
        weight = getattr(model.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    if weight is None and hasattr(model, "text_model"):
        weight = model.text_model.get_input_embeddings().weight
    return 0 if weight is None or weight.dim() != 2 else len(weight)


def _output(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    remedy = "Where it runs elsewhere, have the adapter written without running it."
    with torch.no_grad(), foreign_errors(type(model).__name__, remedy, argument="verify"):
        output = model(**batch)
    names = ("logits", "logits_per_image", "last_hidden_state")
    value = next((output[name] for name in names if output.get(name) is not None), None)
    found: Tensor = output[0] if value is None else value
    return found.double()


def _relative(found: Tensor, wanted: Tensor) -> float:
    length = float(torch.linalg.vector_norm(wanted))
    distance = float(torch.linalg.vector_norm(found - wanted))
    return distance / length if length else distance


def _weights(adapted: Any, base: Source, tuned: Source, fates: Fates) -> pd.DataFrame:
    """What the loaded factors add to every adapted tensor, beside what training added."""
    modules = {}
    for path, module in adapted.named_modules():
        if hasattr(module, "get_delta_weight") and "default" in getattr(module, "lora_A", {}):
            plain = path.removeprefix("base_model.model.").replace(".base_layer", "")
            modules[f"{plain}.{getattr(module, 'parameter_name', 'weight')}"] = module
    rows = []
    for item in sorted(fates.items, key=lambda item: item.parameter):
        if item.fate == Fate.DECOMPOSED and item.parameter in modules:
            delta = _piece(modules[item.parameter].get_delta_weight("default").detach(), item)
            before, after = difference(base, tuned, item.pair)
            left, moved, length = _lengths(before, after, delta)
            rows.append(
                {
                    "name": row_name(item.pair),
                    "parameter": item.parameter,
                    "error": left / (length or 1.0),
                    "base_error": moved / (length or 1.0),
                    "update_error": left / (moved or 1.0),
                }
            )
    return pd.DataFrame(rows, columns=["name", "parameter", "error", "base_error", "update_error"])


def _lengths(before: Tensor, after: Tensor, delta: Tensor) -> tuple[float, float, float]:
    """‖after − before − delta‖, ‖after − before‖ and ‖after‖ in float64, a part at a time."""
    squares = [0.0, 0.0, 0.0]
    for start in range(0, len(after), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        goal = after[part].double()
        moved = goal - before[part]
        for number, values in enumerate((moved - delta[part], moved, goal)):
            squares[number] += float(torch.linalg.vector_norm(values)) ** 2
    left, moved_by, length = (math.sqrt(square) for square in squares)
    return left, moved_by, length


def _piece(delta: Tensor, item: TensorFate) -> Tensor:
    """What of a fused parameter's change belongs to one tensor on disk."""
    if item.expert is None or item.slot is None:
        return delta
    return delta[item.expert].chunk(item.slot.parts)[item.slot.part]
