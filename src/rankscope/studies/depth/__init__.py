"""The same task on encoders of several layers and heads: what survives of the theorem."""

from rankscope.lab.paper import Study
from rankscope.studies.depth.claims import CLAIMS
from rankscope.studies.depth.experiments import experiments
from rankscope.studies.depth.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
