"""Phase diagrams: where each figure of the paper holds, over three pairs of settings, with the predicted border."""

from rankscope.papers.li2024.phases.claims import CLAIMS
from rankscope.papers.li2024.phases.experiments import experiments
from rankscope.papers.li2024.phases.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
