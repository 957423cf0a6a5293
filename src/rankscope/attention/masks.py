"""The masks of `nn.MultiheadAttention`'s call, merged into the one mask that attention needs."""

import torch
from torch import Tensor

from rankscope.core import InputError


def merge_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    shape: tuple[int, int, int, int],
    like: Tensor,
) -> Tensor | None:
    """One mask that broadcasts to `shape` = (batch, heads, queries, keys), or None where nothing is masked.

    Bool in, bool out with True = may be seen (the opposite of the call's True = hidden, and what
    `scaled_dot_product_attention` takes). With a float mask among them the result is float, in the dtype
    of `like`, and is added to the scores.
    """
    batch, heads, queries, keys = shape
    hidden: list[Tensor] = []
    if attn_mask is not None:
        _check(attn_mask, "attn_mask", ((queries, keys), (batch * heads, queries, keys)), like)
        hidden.append(attn_mask.reshape(shape) if attn_mask.dim() == 3 else attn_mask)
    if key_padding_mask is not None:
        allowed: tuple[tuple[int, ...], ...] = ((batch, keys), (keys,)) if batch == 1 else ((batch, keys),)
        _check(key_padding_mask, "key_padding_mask", allowed, like)
        hidden.append(key_padding_mask.reshape(batch, 1, 1, keys))
    if is_causal:
        hidden.append(torch.ones(queries, keys, dtype=torch.bool, device=like.device).triu(1))
    if not hidden:
        return None
    if all(mask.dtype == torch.bool for mask in hidden):
        merged = hidden[0]
        for mask in hidden[1:]:
            merged = merged | mask
        return ~merged
    added = torch.zeros((), dtype=like.dtype, device=like.device)
    for mask in hidden:
        added = added.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else added + mask
    return added.to(like.dtype)


def _check(mask: Tensor, name: str, allowed: tuple[tuple[int, ...], ...], like: Tensor) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise InputError(
            f"{name} has dtype {mask.dtype}: pass bool (True = hidden) or float (added to the scores)."
        )
    if tuple(mask.shape) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise InputError(f"{name} has shape {tuple(mask.shape)}: this call needs {wanted}.")
    if mask.device != like.device:
        raise InputError(f"{name} is on {mask.device}, the tokens on {like.device}: move it there.")
