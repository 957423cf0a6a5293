"""RankAttention as a user of `nn.MultiheadAttention` types it, with heads that show what they use of their rank."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rankscope.attention import layer
from rankscope.core import InputError
from rankscope.linalg import spectrum
from rankscope.linalg.factored import Factored

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, repr=False)
class HeadProduct:
    """One head's W_KᵀW_Q or W_O W_V: its singular values and measured ranks, as plain numbers without a gradient.

    name        as "qk of head 0"
    factors     the product, kept as its two factors
    """

    name: str
    factors: Factored

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the product."""
        return self.factors.shape

    @property
    def rank(self) -> int:
        """The architectural rank: no more than this many singular values are not zero."""
        return min(int(self.factors.left.shape[-1]), *self.shape)

    def spectrum(self) -> list[float]:
        """The singular values, largest first."""
        return [float(value) for value in self._values()[: self.rank]]

    @property
    def effective_rank(self) -> float:
        """Exp of the entropy of the singular values' shares   [Roy and Vetterli 2007]"""
        return float(spectrum.effective_rank(self._values()))

    @property
    def stable_rank(self) -> float:
        """‖A‖²_F / ‖A‖²₂"""
        return float(spectrum.stable_rank(self._values()))

    def energy_rank(self, share: float) -> int:
        """The fewest singular values whose squares hold `share` of their sum."""
        return int(spectrum.energy_rank(self._values(), share))

    def to_dense(self) -> Tensor:
        """The product multiplied out, with its gradient."""
        return self.factors.to_dense()

    def plot(self) -> "Canvas":
        """The singular values against their index, as a matplotlib figure."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(5.0, 3.2), layout="constrained")
        FigureCanvasAgg(canvas)
        axis = canvas.add_subplot()
        values = self.spectrum()
        axis.plot(range(1, len(values) + 1), values, marker=".")
        axis.set(title=self.name, xlabel="index", ylabel="singular value")
        return canvas

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"HeadProduct({self.name}: {rows} × {columns}, rank {self.rank}, effective_rank={self.effective_rank:.2f}, "
            f"stable_rank={self.stable_rank:.2f})"
        )

    def _repr_html_(self) -> str:
        rows, columns = self.shape
        cells = {
            "rank": str(self.rank),
            "effective rank": f"{self.effective_rank:.2f}",
            "stable rank": f"{self.stable_rank:.2f}",
            "energy rank (0.95)": str(self.energy_rank(0.95)),
        }
        head = "".join(f"<th>{name}</th>" for name in cells)
        body = "".join(f"<td>{value}</td>" for value in cells.values())
        caption = f"{self.name}, {rows} × {columns}"
        return f"<table><caption>{caption}</caption><tr>{head}</tr><tr>{body}</tr></table>"

    def _values(self) -> Tensor:
        return Factored(self.factors.left.detach(), self.factors.right.detach()).spectrum()


class RankAttention(layer.RankAttention):
    """Multi-head attention with `heads`, `rank` and `value_rank` set apart: `nn.MultiheadAttention`'s call.

    Args:
        dim: size of a token. `embed_dim`, as `nn.MultiheadAttention` calls it, is the same.
        heads: number of heads. `num_heads` is the same.
        rank: rank of every head's W_KᵀW_Q; dim / heads, as in `nn.MultiheadAttention`, unless given.
        value_rank: rank of every head's W_O W_V; `rank` unless given.
        kv_heads: keys and values are shared by groups of heads / kv_heads heads; `heads` unless given.
        settings: what `rankscope.attention.layer.RankAttention` takes beyond that: blocks, bias, batch_first, dropout,
            selection, scale, scoring, way, key_dim (or kdim), value_dim (or vdim), device, dtype.

    Example:
        >>> import torch, rankscope
        >>> layer = rankscope.RankAttention(embed_dim=64, num_heads=4, rank=64, value_rank=16, batch_first=True)
        >>> tokens = torch.zeros(2, 10, 64)
        >>> output, weights = layer(tokens, tokens, tokens)
        >>> tuple(output.shape), layer.rank, layer.value_rank
        ((2, 10, 64), 64, 16)
        >>> 1 < layer.qk(0).effective_rank < 64
        True
    """

    def __init__(
        self,
        dim: int | None = None,
        heads: int | None = None,
        rank: int | None = None,
        value_rank: int | None = None,
        kv_heads: int | None = None,
        *,
        embed_dim: int | None = None,
        num_heads: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        **settings: Any,
    ) -> None:
        dim = _needed("dim", dim, "embed_dim", embed_dim)
        heads = _needed("heads", heads, "num_heads", num_heads)
        for ours, stock, given in (("key_dim", "kdim", kdim), ("value_dim", "vdim", vdim)):
            settings[ours] = _one(ours, settings.get(ours), stock, given)
        if rank is None:
            if heads < 1 or dim % heads:
                raise InputError(
                    f"rank is dim / heads unless given, and dim={dim} is no multiple of heads={heads}: give rank."
                )
            rank = dim // heads
        super().__init__(dim, heads, rank, value_rank, kv_heads, **settings)

    def qk(self, head: int) -> HeadProduct:  # type: ignore[override]
        """M_h = W_Kᵀ W_Q (key_dim × dim) of one head, without biases and without `scale`.

        Args:
            head: which head, from 0.

        Returns:
            The product with its spectrum and measured ranks.
        """
        return HeadProduct(f"qk of head {head}", super().qk(head))

    def ov(self, head: int) -> HeadProduct:  # type: ignore[override]
        """W_h = W_O W_V / blocks (dim × value_dim) of one head, without biases.

        Args:
            head: which head, from 0.

        Returns:
            The product with its spectrum and measured ranks.
        """
        return HeadProduct(f"ov of head {head}", super().ov(head))


def _one(ours: str, value: int | None, stock: str, given: int | None) -> int | None:
    """A setting that has two names: whichever was given."""
    if value is not None and given is not None:
        raise InputError(
            f"{ours}={value} and {stock}={given} are two names of one setting: give one of them."
        )
    return given if value is None else value


def _needed(ours: str, value: int | None, stock: str, given: int | None) -> int:
    found = _one(ours, value, stock, given)
    if found is None:
        raise InputError(f"RankAttention needs {ours} (nn.MultiheadAttention's {stock}): give it.")
    return found
