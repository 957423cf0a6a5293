"""Scores to prune by, compared at equal fractions."""

from rankscope.papers.li2024.pruning.claims import CLAIMS
from rankscope.papers.li2024.pruning.experiments import experiments
from rankscope.papers.li2024.pruning.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
