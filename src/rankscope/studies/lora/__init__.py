"""Training with the update held to a rank from the start."""

from rankscope.lab.paper import Study
from rankscope.studies.lora.claims import CLAIMS
from rankscope.studies.lora.experiments import experiments
from rankscope.studies.lora.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
