"""Transformer encoders of RankAttention layers, from the off-the-shelf kind to the paper's own."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.attention.layer import RankAttention
from rankscope.core import InputError
from rankscope.theory.heads.counting import heads_of_budget


class NormKind(Enum):
    """Which normalisation surrounds attention and MLP."""

    LAYER = "layer"
    RMS = "rms"
    SCALAR = "scalar"


class NormOrder(Enum):
    """Norm(x + f(x)) as in nn.TransformerEncoderLayer's default, or x + f(norm(x))."""

    POST = "post"
    PRE = "pre"


class ScalarNorm(nn.Module):
    """x ↦ scale · x/‖x‖ with one learned scalar for all features, 1 at the start   [amsel2024, RMSNorm]

    A zero token stays zero.
    """

    def __init__(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """The token on the sphere of radius |scale|."""
        return self.scale * functional.normalize(x, dim=-1)


class RankEncoderLayer(nn.Module):
    """Attention, then a two-layer MLP of `hidden` neurons, each with a skip and a norm.

    The call is `nn.TransformerEncoderLayer`'s; tokens come batch first unless told otherwise. Whatever else
    RankAttention takes (value_rank, kv_heads, blocks, selection, …) goes to it unchanged.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        rank: int,
        hidden: int,
        *,
        norm: NormKind = NormKind.LAYER,
        order: NormOrder = NormOrder.POST,
        activation: Callable[[Tensor], Tensor] = functional.relu,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        if hidden < 1:
            raise InputError(f"hidden={hidden}: the MLP needs at least one neuron.")
        new: dict[str, Any] = {"device": device, "dtype": dtype}
        shared: dict[str, Any] = {"dropout": dropout, "bias": bias, "batch_first": batch_first}
        self.attention = RankAttention(dim, heads, rank, **shared, **attention, **new)
        self.mlp_in = nn.Linear(dim, hidden, bias=bias, **new)
        self.mlp_out = nn.Linear(hidden, dim, bias=bias, **new)
        self.attention_norm = _new_norm(norm, dim, bias, new)
        self.mlp_norm = _new_norm(norm, dim, bias, new)
        self.order, self.activation, self.dropout = order, activation, dropout

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Tokens in, tokens out; masks with True = hidden."""

        def attend(x: Tensor) -> Tensor:
            output: Tensor = self.attention(
                x,
                x,
                x,
                key_padding_mask=src_key_padding_mask,
                need_weights=False,
                attn_mask=src_mask,
                is_causal=is_causal,
            )[0]
            return self._drop(output)

        if self.order is NormOrder.PRE:
            src = src + attend(self.attention_norm(src))
            return src + self._mlp(self.mlp_norm(src))
        src = self.attention_norm(src + attend(src))
        output: Tensor = self.mlp_norm(src + self._mlp(src))
        return output

    def _mlp(self, x: Tensor) -> Tensor:
        return self._drop(self.mlp_out(self._drop(self.activation(self.mlp_in(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


class RankEncoder(nn.Module):
    """`layers` RankEncoderLayers, each drawn anew; `final_norm` adds one norm at the end (pre-norm needs it).

    Without it there is no read-out and no norm after the last layer, as in the paper.
    """

    def __init__(
        self,
        layers: int,
        dim: int,
        heads: int,
        rank: int,
        hidden: int,
        *,
        final_norm: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise InputError(f"layers={layers}: an encoder needs at least one.")
        self.layers = nn.ModuleList(
            RankEncoderLayer(dim, heads, rank, hidden, **settings) for _ in range(layers)
        )
        new: dict[str, Any] = {name: settings[name] for name in ("device", "dtype") if name in settings}
        norm = _new_norm(settings.get("norm", NormKind.LAYER), dim, settings.get("bias", True), new)
        self.final_norm = norm if final_norm else nn.Identity()

    @classmethod
    def averaged(
        cls, layers: int, dim: int, rank: int, budget: int, hidden: int = 2048, **settings: Any
    ) -> Self:
        """The paper's encoder: post-norm, one learned scalar a norm, `budget` averaged blocks of dim/rank heads a layer.

        A layer's attention equals the average of `budget` stock modules in function and in Adam's steps: initial weights
        and gradients are those of a block, and the factor 1/budget is outside the weights.
        """
        paper: dict[str, Any] = {"norm": NormKind.SCALAR, "order": NormOrder.POST, "blocks": budget}
        return cls(layers, dim, heads_of_budget(dim, rank, budget), rank, hidden, **(paper | settings))

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The call of `nn.TransformerEncoder`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        output: Tensor = self.final_norm(src)
        return output


def _new_norm(norm: NormKind, dim: int, bias: bool, new: dict[str, Any]) -> nn.Module:
    if norm is NormKind.LAYER:
        return nn.LayerNorm(dim, bias=bias, **new)
    return nn.RMSNorm(dim, **new) if norm is NormKind.RMS else ScalarNorm(**new)
