"""The same task on encoders of several layers and heads: what survives of the theorem."""

from rankscope.papers.li2024.depth.claims import CLAIMS
from rankscope.papers.li2024.depth.experiments import experiments
from rankscope.papers.li2024.depth.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
