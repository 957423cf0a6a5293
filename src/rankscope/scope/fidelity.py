"""How near an adapter on its base comes to the tuned model: measured by loading it, not hoped for."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rankscope.checkpoints import Source
from rankscope.checkpoints.modules import import_extra, model_class
from rankscope.core import RankscopeError
from rankscope.core.streams import stream


@dataclass(frozen=True)
class Fidelity:
    """Relative errors against the tuned model, ‖x − y‖ / ‖y‖."""

    logits_error: float
    """of base plus adapter"""
    base_logits_error: float
    """of the base alone: what the adapter had to make up for"""
    weights: pd.DataFrame
    """per adapted parameter the relative error of base plus adapter, and of the base alone"""

    def sentence(self) -> str:
        """The figures in words."""
        worst = float(self.weights["error"].max()) if len(self.weights) else 0.0
        return (
            f"Loaded with peft on the base model: relative error of the output {self.logits_error:.2e} "
            f"(base alone {self.base_logits_error:.2e}), of a weight at most {worst:.2e}."
        )


def measure_fidelity(
    base: Source, tuned: Source, adapter: Path, batch: Mapping[str, Tensor] | None = None
) -> Fidelity:
    """Load `adapter` on the base in float32 and compare with the tuned model on a fixed batch."""
    goal = load_model(tuned)
    start = load_model(base)
    if _vocabulary(goal) != _vocabulary(start):
        start.resize_token_embeddings(_vocabulary(goal))
    given = fixed_batch(start) if batch is None else batch
    wanted = _output(goal, given)
    alone = _relative(_output(start, given), wanted)
    before = {name: value.detach().clone() for name, value in start.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*fan_in_fan_out.*")
        warnings.filterwarnings("ignore", message=".*lora_bias=True.*")
        warnings.filterwarnings("ignore", message=".*a tied layer is part of the adapter.*")
        # said of fused experts, whose patterns do match: every weight is measured below
        warnings.filterwarnings("ignore", message=".*did not match any targeted module.*")
        try:
            adapted = import_extra("peft").PeftModel.from_pretrained(start, str(adapter)).eval()
        except (UserWarning, RuntimeError, ValueError, KeyError) as error:
            first = str(error).strip().splitlines()[0]
            raise RankscopeError(
                f"The adapter does not load with peft ({first}): nothing was written."
            ) from None
    return Fidelity(_relative(_output(adapted, given), wanted), alone, _weights(adapted, before, goal))


def load_model(source: Source) -> Any:
    """The running model of `source` in float32, without gradients."""
    if source.module is not None:
        return copy.deepcopy(source.module).float().eval()
    kind, settings = model_class(source)
    if source.folder is None:
        model = kind(settings)
        model.load_state_dict({name: source.tensor(name) for name in source.tensors})
        return model.float().eval()
    return kind.from_pretrained(str(source.folder), config=settings, dtype=torch.float32).eval()


def fixed_batch(model: Any) -> dict[str, Tensor]:
    """A batch that fits the model's input, the same in every run."""
    generator = stream(0, "fidelity")
    config = model.config
    if model.main_input_name == "pixel_values":
        size = config.image_size
        return {"pixel_values": torch.randn(2, config.num_channels, size, size, generator=generator)}
    tokens = torch.randint(0, _vocabulary(model), (2, 12), generator=generator)
    if model.main_input_name == "input_features":
        frames = 2 * config.max_source_positions
        features = torch.randn(2, config.num_mel_bins, frames, generator=generator)
        return {"input_features": features, "decoder_input_ids": tokens}
    if config.is_encoder_decoder:
        return {"input_ids": tokens, "decoder_input_ids": tokens.flip(1)}
    return {"input_ids": tokens}


def _vocabulary(model: Any) -> int:
    weight = getattr(model.get_input_embeddings(), "weight", None)
    return 0 if weight is None else len(weight)


def _output(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    with torch.no_grad():
        output = model(**batch)
    value: Tensor = output.logits if hasattr(output, "logits") else output[0]
    return value.double()


def _relative(found: Tensor, wanted: Tensor) -> float:
    length = float(torch.linalg.vector_norm(wanted))
    distance = float(torch.linalg.vector_norm(found - wanted))
    return distance / length if length else distance


def _weights(adapted: Any, before: Mapping[str, Tensor], goal: Any) -> pd.DataFrame:
    wanted = dict(goal.named_parameters())
    rows = []
    for path, module in adapted.named_modules():
        if not hasattr(module, "get_delta_weight") or "default" not in getattr(module, "lora_A", {}):
            continue
        plain = path.removeprefix("base_model.model.").replace(".base_layer", "")
        name = f"{plain}.{getattr(module, 'parameter_name', 'weight')}"
        if name not in wanted:
            continue
        delta = module.get_delta_weight("default").detach()
        rows.append(
            {
                "parameter": name,
                "error": _relative((before[name] + delta).double(), wanted[name].detach().double()),
                "base_error": _relative(before[name].double(), wanted[name].detach().double()),
                "update_error": _relative(delta.double(), (wanted[name].detach() - before[name]).double()),
            }
        )
    return pd.DataFrame(rows, columns=["parameter", "error", "base_error", "update_error"])
