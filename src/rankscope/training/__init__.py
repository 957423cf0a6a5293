"""Ensembles, optimizers and the loop."""
