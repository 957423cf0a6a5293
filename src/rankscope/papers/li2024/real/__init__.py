"""The measurements on a real model fine-tuned on real sentences."""

from rankscope.papers.li2024.real.claims import CLAIMS
from rankscope.papers.li2024.real.experiments import experiments
from rankscope.papers.li2024.real.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
