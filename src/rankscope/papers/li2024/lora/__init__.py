"""Training with the update held to a rank from the start."""

from rankscope.papers.li2024.lora.claims import CLAIMS
from rankscope.papers.li2024.lora.experiments import experiments
from rankscope.papers.li2024.lora.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
