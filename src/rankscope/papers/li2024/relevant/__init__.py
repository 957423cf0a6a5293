"""k label-relevant patterns, in k classes or fewer: does the rank of the update follow k?"""

from rankscope.papers.li2024.relevant.claims import CLAIMS
from rankscope.papers.li2024.relevant.experiments import experiments
from rankscope.papers.li2024.relevant.figures import figures

__all__ = ["CLAIMS", "experiments", "figures"]
