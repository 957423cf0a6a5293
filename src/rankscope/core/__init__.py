"""Errors, strict configurations, named random streams, whole files: the base of every room. Imports no torch by itself."""

from rankscope.core.config import Config
from rankscope.core.errors import InputError, RankscopeError, plain_errors, suggest

__all__ = ["Config", "InputError", "RankscopeError", "plain_errors", "suggest"]
