"""The weights of `nn.MultiheadAttention` as those of RankAttention, and back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.core import InputError


def from_stock(modules: Sequence[nn.MultiheadAttention]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings and state dict of the RankAttention that equals the average of `modules`.

    Averaged blocks are one layer: (1/B) Σ_b Σ_h W_bh X φ_bh is a sum over B·H heads.
    """
    if not modules:
        raise InputError("from_multihead needs at least one nn.MultiheadAttention.")
    first = modules[0]
    for module in modules:
        if module.bias_k is not None or module.add_zero_attn:
            raise InputError("add_bias_kv and add_zero_attn have no counterpart in RankAttention.")
        if _settings(module) != _settings(first):
            raise InputError("Only modules of equal shape and settings can be averaged in one layer.")
    settings = {**_settings(first), "heads": len(modules) * first.num_heads, "blocks": len(modules)}
    weights = {"w_o.weight": torch.cat([module.out_proj.weight.detach() for module in modules], dim=1)}
    inner = [_inner(module) for module in modules]
    for index, name in enumerate(("w_q", "w_k", "w_v")):
        weights[f"{name}.weight"] = torch.cat([weight[index] for weight in inner])
        if settings["bias"]:
            chunks = [module.in_proj_bias.detach().chunk(3)[index] for module in modules]
            weights[f"{name}.bias"] = torch.cat(chunks)
    if settings["bias"]:
        weights["w_o.bias"] = torch.stack([module.out_proj.bias.detach() for module in modules]).mean(0)
    return settings, weights


def to_stock(weights: dict[str, Tensor], *, packed: bool) -> dict[str, Tensor]:
    """State dict of an `nn.MultiheadAttention`; `packed` where it has one in_proj_weight."""
    inner = [weights[f"{name}.weight"] for name in ("w_q", "w_k", "w_v")]
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    stock = {"in_proj_weight": torch.cat(inner)} if packed else dict(zip(names, inner, strict=True))
    stock["out_proj.weight"] = weights["w_o.weight"]
    if "w_o.bias" in weights:
        stock["in_proj_bias"] = torch.cat([weights[f"{name}.bias"] for name in ("w_q", "w_k", "w_v")])
        stock["out_proj.bias"] = weights["w_o.bias"]
    return stock


def _settings(module: nn.MultiheadAttention) -> dict[str, Any]:
    return {
        "dim": module.embed_dim,
        "heads": module.num_heads,
        "rank": module.head_dim,
        "bias": module.in_proj_bias is not None,
        "batch_first": module.batch_first,
        "dropout": module.dropout,
        "key_dim": module.kdim,
        "value_dim": module.vdim,
        "device": module.out_proj.weight.device,
        "dtype": module.out_proj.weight.dtype,
    }


def _inner(module: nn.MultiheadAttention) -> Sequence[Tensor]:
    weights = dict(module.named_parameters(recurse=False))
    if "in_proj_weight" in weights:
        return weights["in_proj_weight"].detach().chunk(3)
    return [weights[f"{name}_proj_weight"].detach() for name in "qkv"]
