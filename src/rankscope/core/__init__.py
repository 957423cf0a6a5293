"""Errors, strict configurations and named random streams: what every other room stands on."""

from rankscope.core.config import Config
from rankscope.core.errors import InputError, RankscopeError, suggest
from rankscope.core.streams import stream, stream_seed

__all__ = ["Config", "InputError", "RankscopeError", "stream", "stream_seed", "suggest"]
