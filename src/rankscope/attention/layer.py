"""RankAttention: attention whose heads, rank and value rank are free of each other.

`nn.MultiheadAttention` ties the rank of a head to dim / heads. Here
    output = Σ_h W_h X φ_h(Xᵀ M_h y),   W_h = W_O W_V of rank ≤ value_rank,   M_h = W_Kᵀ W_Q of rank ≤ rank
and heads, rank and value_rank are three separate choices   [amsel2024, multi-head attention].
"""

import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.attention.checks import check_sizes, check_tokens
from rankscope.attention.masks import merge_masks
from rankscope.attention.multihead import from_stock, to_stock
from rankscope.attention.one_member import attend_as_member, way_of
from rankscope.attention.weighing import Weighing, weigh
from rankscope.core import InputError
from rankscope.kernels.small_attention import Way
from rankscope.linalg.factored import Factored

Scoring = Callable[[Tensor, Tensor], Tensor]
"""keys K_hᵀX (batch, heads, keys, rank) and unprojected queries y (batch, queries, dim)
to scores (batch, heads, queries, keys)."""


def attention_parameters(
    dim: int, heads: int, rank: int, value_rank: int | None = None, kv_heads: int | None = None
) -> int:
    """Weights of one attention layer without biases: dim·(heads + kv_heads)·(rank + value_rank).

    With kv_heads = heads this is 2·dim·heads·(rank + value_rank), and 4rHd for equal ranks   [amsel2024]

    >>> attention_parameters(dim=64, heads=8, rank=8) == 4 * 64**2
    True
    """
    values = rank if value_rank is None else value_rank
    return dim * (heads + (heads if kv_heads is None else kv_heads)) * (rank + values)


class NoPackedWeightsError(InputError, AttributeError):
    """Asked for stock attention's in_proj_weight; an AttributeError too, so that hasattr answers False."""


class RankAttention(nn.Module):
    """Multi-head attention with `heads`, `rank` and `value_rank` set apart: `nn.MultiheadAttention`'s call.

    value_rank   of each head's W_O W_V; the same as `rank` unless given
    kv_heads     keys and values are shared by groups of heads / kv_heads heads
    blocks       the heads are this many parallel blocks whose outputs are averaged: weights are
                 initialised per block and the sum over heads is divided by `blocks`
    selection    softmax, or hardmax (ties share the weight; no gradient to the scores)
    scale        factor on the scores; 1/√rank unless given
    scoring      generalised heads: scores from the projected keys and the unprojected query, see `Scoring`.
                 There is then no W_Q. A module given here is trained along.
    way          how attention is computed, where nothing is masked, dropped or returned; chosen unless given:
                 the fused kernel for short sequences on a GPU, else torch's own. See `Way`.
    key_dim, value_dim   of the key and value tokens, where not `dim`

    Documented results. A query that may see no key (all masked, or none there) attends to nothing: its
    output is the output bias. NaN in a key or value reaches every query of that sequence, even where it is
    masked (0 · NaN is NaN). NaN in a query makes that query's output NaN and touches no other; torch's fused
    CPU kernel (no weights needed) may take such a query for one that sees nothing. An empty batch or query
    sequence gives an empty output. `is_causal` alone masks causally; with `attn_mask`, both apply.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        rank: int,
        value_rank: int | None = None,
        kv_heads: int | None = None,
        *,
        blocks: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        selection: Weighing = Weighing.SOFTMAX,
        scale: float | None = None,
        scoring: Scoring | None = None,
        way: Way | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.rank, self.blocks = dim, heads, rank, blocks
        self.value_rank = rank if value_rank is None else value_rank
        self.kv_heads = heads if kv_heads is None else kv_heads
        self.key_dim = dim if key_dim is None else key_dim
        self.value_dim = dim if value_dim is None else value_dim
        self.batch_first, self.dropout, self.selection = batch_first, dropout, selection
        self.scoring, self.way = scoring, way
        check_sizes(self)
        if scoring is not None and scale is not None:
            raise InputError(
                "scale is the factor on W_KᵀW_Q scores: with scoring, scale inside the callable."
            )
        self.scale = 1 / math.sqrt(rank) if scale is None else scale
        new: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.w_q = nn.Linear(dim, heads * rank, **new) if scoring is None else None
        self.w_k = nn.Linear(self.key_dim, self.kv_heads * rank, **new)
        self.w_v = nn.Linear(self.value_dim, self.kv_heads * self.value_rank, **new)
        self.w_o = nn.Linear(heads * self.value_rank, dim, **new)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """The law of `nn.MultiheadAttention`'s initial weights, in every block and at any rank.

        W_Q, W_K, W_V uniform with variance 1/(2·dim); W_O uniform with variance 1/(3·fan-in of a block).
        """
        for projection in (self.w_q, self.w_k, self.w_v):
            if projection is not None:
                bound = math.sqrt(1.5 / projection.in_features)
                nn.init.uniform_(projection.weight, -bound, bound, generator=generator)
        bound = 1 / math.sqrt(self.w_o.in_features / self.blocks)
        nn.init.uniform_(self.w_o.weight, -bound, bound, generator=generator)
        for projection in (self.w_q, self.w_k, self.w_v, self.w_o):
            if projection is not None and projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The call of `nn.MultiheadAttention`: (output, weights or None), masks with True = hidden."""
        check_tokens(self, query, key, value)
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        batch_first = self.batch_first or not batched
        fused = self.w_q is not None and self.selection is Weighing.SOFTMAX and not need_weights
        dropout = self.dropout if self.training else 0.0
        hidden = attn_mask is not None or key_padding_mask is not None or is_causal
        way = way_of(self, query, key, batch_first, plain=fused and not hidden and dropout == 0)
        if way is not Way.STOCK:
            output = attend_as_member(self, query, key, value, batch_first, way)
            return output if batched else output.squeeze(0), None
        k = _split(self.w_k(key), self.kv_heads, self.rank, batch_first)
        v = _split(self.w_v(value), self.kv_heads, self.value_rank, batch_first)
        batch, queries = query.shape[:2] if batch_first else (query.shape[1], query.shape[0])
        shape = (batch, self.heads, queries, k.shape[2])
        causal_only = fused and is_causal and attn_mask is None and key_padding_mask is None
        mask = merge_masks(attn_mask, key_padding_mask, is_causal and not causal_only, shape, like=k)
        weights = None
        if fused:
            context = functional.scaled_dot_product_attention(
                self._queries(query, batch_first),
                k,
                v,
                attn_mask=mask,
                dropout_p=dropout,
                is_causal=causal_only,
                scale=self.scale,
                enable_gqa=self.kv_heads != self.heads,
            )
        else:
            scores = self._scores(query, self._for_every_head(k), batch_first, shape)
            weights = functional.dropout(weigh(scores, mask, self.selection), dropout)
            context = weights @ self._for_every_head(v)
        output = self._project_out(_join(context, batch_first))
        weights = weights if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            output, weights = output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output, weights

    def qk(self, head: int) -> Factored:
        """M_h = W_Kᵀ W_Q (key_dim × dim) of one head, without biases and without `scale`."""
        if self.w_q is None:
            raise InputError(
                "This layer scores by a callable, so no head has a W_KᵀW_Q. Look at w_k instead."
            )
        group = self._group(head)
        w_q = self.w_q.weight.view(self.heads, self.rank, -1)[head]
        w_k = self.w_k.weight.view(self.kv_heads, self.rank, -1)[group]
        return Factored(left=w_k.mT, right=w_q)

    def ov(self, head: int) -> Factored:
        """W_h = W_O W_V / blocks (dim × value_dim) of one head, without biases."""
        group = self._group(head)
        w_o = self.w_o.weight.view(-1, self.heads, self.value_rank)[:, head]
        w_v = self.w_v.weight.view(self.kv_heads, self.value_rank, -1)[group]
        return Factored(left=w_o / self.blocks, right=w_v)

    @classmethod
    def from_multihead(cls, *modules: nn.MultiheadAttention) -> Self:
        """The same function as `nn.MultiheadAttention`; of several modules, their average in one layer."""
        settings, weights = from_stock(modules)
        layer = cls(**settings)
        layer.load_state_dict(weights)
        return layer.train(modules[0].training)

    def to_multihead(self) -> nn.MultiheadAttention:
        """The same function as a stock module, where one exists: rank = value_rank = dim / heads."""
        default = self.selection is Weighing.SOFTMAX and self.scale == 1 / math.sqrt(self.rank)
        if self.w_q is None or not default or self.blocks > 1:
            raise InputError(
                "nn.MultiheadAttention knows only softmax of scores scaled by 1/√rank, in one block: "
                "a layer with scoring, hardmax, scale or blocks cannot become one."
            )
        if self.kv_heads != self.heads or self.value_rank != self.rank or self.rank * self.heads != self.dim:
            raise InputError(
                "nn.MultiheadAttention ties rank = value_rank = dim / heads and kv_heads = heads; "
                f"this layer has dim={self.dim}, heads={self.heads}, rank={self.rank}, "
                f"value_rank={self.value_rank}, kv_heads={self.kv_heads}. Keep it as it is."
            )
        module = nn.MultiheadAttention(
            self.dim,
            self.heads,
            dropout=self.dropout,
            bias=self.w_q.bias is not None,
            kdim=self.key_dim,
            vdim=self.value_dim,
            batch_first=self.batch_first,
            device=self.w_q.weight.device,
            dtype=self.w_q.weight.dtype,
        )
        packed = module.in_proj_weight is not None
        module.load_state_dict(to_stock(self.state_dict(), packed=packed))
        return module.train(self.training)

    def extra_repr(self) -> str:
        """The sizes that `repr` shows."""
        return (
            f"dim={self.dim}, heads={self.heads}, rank={self.rank}, value_rank={self.value_rank}, "
            f"kv_heads={self.kv_heads}, blocks={self.blocks}, selection={self.selection.value}"
        )

    @property
    def in_proj_bias(self) -> None:
        """None: `nn.TransformerEncoderLayer` reads it to see that its fused inference path does not apply."""
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "in_proj_weight":
            raise NoPackedWeightsError(
                "RankAttention has no packed in_proj_weight. If nn.TransformerEncoder asked for it: set "
                "encoder.use_nested_tensor = False, or exchange its attention by replace_attention(encoder)."
            )
        return super().__getattr__(name)

    def _queries(self, query: Tensor, batch_first: bool) -> Tensor:
        assert self.w_q is not None
        return _split(self.w_q(query), self.heads, self.rank, batch_first)

    def _scores(self, query: Tensor, k: Tensor, batch_first: bool, shape: tuple[int, ...]) -> Tensor:
        if self.scoring is None:
            return (self._queries(query, batch_first) * self.scale) @ k.mT
        scores = self.scoring(k, query if batch_first else query.transpose(0, 1))
        if tuple(scores.shape) != shape:
            raise InputError(
                f"scoring returned shape {tuple(scores.shape)}: it must return "
                f"(batch, heads, queries, keys) = {shape}."
            )
        return scores

    def _for_every_head(self, x: Tensor) -> Tensor:
        return x if self.kv_heads == self.heads else x.repeat_interleave(self.heads // self.kv_heads, dim=1)

    def _project_out(self, context: Tensor) -> Tensor:
        if self.blocks == 1:
            output: Tensor = self.w_o(context)
            return output
        return functional.linear(context, self.w_o.weight / self.blocks, self.w_o.bias)

    def _group(self, head: int) -> int:
        if not 0 <= head < self.heads:
            raise InputError(f"head={head}: this layer has heads 0 to {self.heads - 1}.")
        return head // (self.heads // self.kv_heads)


def _split(tokens: Tensor, heads: int, rank: int, batch_first: bool) -> Tensor:
    """(batch, token, heads·rank), or token first, to (batch, head, token, rank): a view."""
    apart = tokens.view(*tokens.shape[:-1], heads, rank)
    return apart.permute((0, 2, 1, 3) if batch_first else (1, 2, 0, 3))


def _join(context: Tensor, batch_first: bool) -> Tensor:
    """The way back of `_split`."""
    return context.permute((0, 2, 1, 3) if batch_first else (2, 0, 1, 3)).flatten(-2)
