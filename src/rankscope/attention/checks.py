"""What attention refuses, and what to do about it. Shapes and dtypes only: no look at the numbers."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankscope.core import InputError

if TYPE_CHECKING:
    from rankscope.attention.layer import RankAttention


def check_sizes(layer: "RankAttention") -> None:
    """Refuse sizes that no attention layer can have."""
    for name in ("dim", "heads", "rank", "value_rank", "kv_heads", "blocks", "key_dim", "value_dim"):
        if getattr(layer, name) < 1:
            raise InputError(f"{name}={getattr(layer, name)}: must be at least 1.")
    for name, product in (("rank", "W_KᵀW_Q"), ("value_rank", "W_O W_V")):
        if getattr(layer, name) > layer.dim:
            raise InputError(
                f"{name}={getattr(layer, name)} > dim={layer.dim}: {product} cannot exceed rank {layer.dim}. "
                f"Lower {name} to ≤ {layer.dim} or raise dim."
            )
    if layer.heads % layer.kv_heads:
        raise InputError(
            f"heads={layer.heads} is not a multiple of kv_heads={layer.kv_heads}: every key/value head "
            f"serves the same number of heads. {_divisors('kv_heads', layer.heads)}"
        )
    if layer.heads % layer.blocks:
        raise InputError(
            f"heads={layer.heads} is not a multiple of blocks={layer.blocks}: every block has the same "
            f"number of heads. {_divisors('blocks', layer.heads)}"
        )
    if not 0 <= layer.dropout < 1:
        raise InputError(f"dropout={layer.dropout}: a probability in [0, 1).")


def check_tokens(layer: "RankAttention", query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse tokens that do not fit the layer or each other."""
    weight = layer.w_k.weight
    named = (("query", query, layer.dim), ("key", key, layer.key_dim), ("value", value, layer.value_dim))
    for name, tokens, dim in named:
        if tokens.is_nested:
            raise InputError(
                f"{name} is a nested tensor: pass padded tokens with key_padding_mask "
                "(in an nn.TransformerEncoder: encoder.use_nested_tensor = False)."
            )
        if tokens.dim() not in (2, 3) or tokens.dim() != query.dim():
            raise InputError(
                f"{name} has shape {tuple(tokens.shape)}: pass query, key and value all as (tokens, dim) or "
                f"all as {'(batch, tokens, dim)' if layer.batch_first else '(tokens, batch, dim)'}."
            )
        if tokens.shape[-1] != dim:
            raise InputError(f"{name} has {tokens.shape[-1]} features: this layer was built for {dim}.")
        if tokens.device != weight.device:
            raise InputError(
                f"{name} is on {tokens.device}, the layer on {weight.device}: "
                f"move one of them, say {name}.to({str(weight.device)!r})."
            )
        if tokens.dtype != weight.dtype and not torch.is_autocast_enabled(tokens.device.type):
            raise InputError(
                f"{name} is {tokens.dtype}, the layer {weight.dtype}: "
                f"call layer.to({tokens.dtype}) or {name}.to({weight.dtype}), or use autocast."
            )
    batch_axis = 0 if layer.batch_first else 1
    if key.shape[:-1] != value.shape[:-1]:
        raise InputError(f"key {tuple(key.shape)} and value {tuple(value.shape)} hold different tokens.")
    if query.dim() == 3 and query.shape[batch_axis] != key.shape[batch_axis]:
        raise InputError(
            f"query has batch {query.shape[batch_axis]}, key has batch {key.shape[batch_axis]} "
            f"(batch_first={layer.batch_first}): give both the same."
        )


def _divisors(name: str, heads: int) -> str:
    return f"Choose {name} among {', '.join(str(n) for n in range(1, heads + 1) if heads % n == 0)}."
