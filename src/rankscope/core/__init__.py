"""Errors, strict configurations, named random streams, whole files: what every other room stands on. No torch until asked."""

from rankscope.core.config import Config
from rankscope.core.errors import InputError, RankscopeError, plain_errors, suggest

__all__ = ["Config", "InputError", "RankscopeError", "plain_errors", "suggest"]
