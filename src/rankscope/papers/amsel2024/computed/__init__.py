"""The talk's computable statements: experiments without training, their claims and figures."""

from rankscope.lab.paper import Study
from rankscope.papers.amsel2024.computed.claims import CLAIMS
from rankscope.papers.amsel2024.computed.experiments import experiments
from rankscope.papers.amsel2024.computed.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
