"""Phase diagrams: where each figure of the paper holds, over three pairs of settings, with the predicted border."""

from rankscope.lab.paper import Study
from rankscope.studies.phases.claims import CLAIMS
from rankscope.studies.phases.experiments import experiments
from rankscope.studies.phases.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
