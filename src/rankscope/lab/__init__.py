"""Experiments, grids, claims, the store and the runners."""
