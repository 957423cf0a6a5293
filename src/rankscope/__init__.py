"""Rankscope: how much rank does attention need?

A lab that makes two papers executable, the theory behind them computed, and the same
measurements pointed at real checkpoints.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rankscope")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"
