"""Exchange the attention inside somebody's model."""

from collections.abc import Callable

from torch import nn

from rankscope.attention.rank_attention import RankAttention
from rankscope.core import InputError


def replace_attention(
    model: nn.Module,
    make: Callable[[nn.MultiheadAttention], nn.Module] = RankAttention.from_multihead,
) -> int:
    """Put `make(stock)` in the place of every `nn.MultiheadAttention` in `model`.

    Without `make` the model stays the same function. A module used in two places stays one module. Padded
    batches no longer become nested tensors in an `nn.TransformerEncoder`: only stock attention reads those.

    Args:
        model: changed in place.
        make: the new module, from the stock one.

    Returns:
        How many modules were replaced.

    Example:
        >>> from torch import nn
        >>> import rankscope
        >>> model = nn.TransformerEncoderLayer(32, 4)
        >>> rankscope.replace_attention(model)
        1
        >>> model.self_attn.rank
        8
    """
    made: dict[nn.MultiheadAttention, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, nn.MultiheadAttention):
                if child not in made:
                    made[child] = make(child)
                setattr(parent, name, made[child])
    if not made:
        raise InputError(
            f"{type(model).__name__} holds no nn.MultiheadAttention to exchange: pass the model around it, "
            "or build RankAttention in its place by hand."
        )
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
    return len(made)
