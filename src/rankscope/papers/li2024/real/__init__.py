"""The measurements on real data: a published model fine-tuned on sentences, a small ViT on digits."""

from rankscope.papers.li2024.real.claims import CLAIMS
from rankscope.papers.li2024.real.experiments import experiments
from rankscope.papers.li2024.real.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
