"""Transformer encoders of RankAttention layers, from the off-the-shelf kind to the paper's own."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.attention.rank_attention import RankAttention
from rankscope.core import InputError, suggest
from rankscope.theory.heads.counting import heads_of_budget

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class NormKind(StrEnum):
    """Which normalisation surrounds attention and MLP."""

    LAYER = "layer"
    RMS = "rms"
    SCALAR = "scalar"


class NormOrder(StrEnum):
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
    """Attention, then a two-layer MLP, each with a skip and a norm; the call is `nn.TransformerEncoderLayer`'s.

    Args:
        dim: size of a token.
        heads: number of heads.
        rank: rank of every head's W_KᵀW_Q.
        hidden: neurons of the MLP.
        norm: "layer", "rms", or "scalar": every token on a sphere with one learned radius.
        order: "post", the norm after the skip, as `nn.TransformerEncoderLayer` does unless told otherwise; or "pre".
        activation: of the MLP.
        dropout: of attention weights, of the MLP, and of what both add.
        bias: whether projections, MLP and norms have biases.
        batch_first: whether tokens are (batch, token, dim).
        device: of the weights.
        dtype: of the weights.
        attention: what else RankAttention takes, as value_rank, kv_heads, blocks and selection.

    Example:
        >>> import torch, rankscope
        >>> layer = rankscope.RankEncoderLayer(dim=64, heads=8, rank=64, hidden=256, kv_heads=2)
        >>> tuple(layer(torch.zeros(4, 16, 64)).shape)
        (4, 16, 64)
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        rank: int,
        hidden: int,
        *,
        norm: str = NormKind.LAYER,
        order: str = NormOrder.POST,
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
        self.order, self.activation, self.dropout = _named("order", order, NormOrder), activation, dropout

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
    """An encoder whose heads have the rank that you choose; the call is `nn.TransformerEncoder`'s.

    Args:
        layers: how many layers; each is drawn anew.
        dim: size of a token.
        heads: heads of every layer.
        rank: rank of every head's W_KᵀW_Q.
        hidden: neurons of every MLP.
        final_norm: whether a norm comes after the last layer; with order="pre" it is needed.
        settings: what `RankEncoderLayer` takes beyond that: norm, order, activation, dropout, bias, batch_first, device,
            dtype, value_rank, kv_heads and all else of RankAttention.

    Example:
        >>> import torch, rankscope
        >>> encoder = rankscope.RankEncoder(2, dim=64, heads=8, rank=64, hidden=256, value_rank=8, norm="rms", order="pre")
        >>> tuple(encoder(torch.zeros(4, 16, 64)).shape), encoder.layers[0].attention.qk(0).rank
        ((4, 16, 64), 64)
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


def _new_norm(norm: str, dim: int, bias: bool, new: dict[str, Any]) -> nn.Module:
    kind = _named("norm", norm, NormKind)
    if kind is NormKind.LAYER:
        return nn.LayerNorm(dim, bias=bias, **new)
    return nn.RMSNorm(dim, **new) if kind is NormKind.RMS else ScalarNorm(**new)


def _named(argument: str, given: str, choices: type[ChoiceT]) -> ChoiceT:
    names = [one.value for one in choices]
    if given not in names:
        raise InputError(f"{argument}={given!r}: {suggest(str(given), names)}", argument=argument)
    return choices(given)
