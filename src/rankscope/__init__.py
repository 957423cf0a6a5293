"""Rankscope: how much rank does attention need?

A lab that makes three papers executable, the theory behind them computed, and the same
measurements pointed at real checkpoints.

The names below are imported when they are first used: `import rankscope` imports no torch, and neither does
`rankscope.min_heads`.

>>> import rankscope
>>> rankscope.min_heads(dim=64, rank=8, error=0.1)
6016
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("rankscope")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"

__all__ = [
    "InputError", "RankAttention", "RankEncoder", "RankEncoderLayer", "compress_heads", "error_floor", "export_adapter",
    "load", "load_compressed", "measure_heads", "measure_neurons", "measure_updates", "min_heads", "plan", "prune_model",
    "replace_attention", "reproduce",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name, imported from its room when it is first used."""
    from importlib import import_module

    rooms = {
        "InputError": "core.errors",
        "RankAttention": "attention.rank_attention",
        "RankEncoder": "attention.encoder",
        "RankEncoderLayer": "attention.encoder",
        "compress_heads": "scope.compress",
        "error_floor": "theory",
        "export_adapter": "scope.adapter",
        "load": "runs",
        "load_compressed": "scope.packed_layers",
        "measure_heads": "scope.views",
        "measure_neurons": "scope.views",
        "measure_updates": "scope.views",
        "min_heads": "theory",
        "plan": "theory",
        "prune_model": "scope.prune",
        "replace_attention": "attention.replace",
        "reproduce": "runs",
    }
    if name not in rooms:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    found = getattr(import_module(f"rankscope.{rooms[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
