"""Scores to prune by, compared at equal fractions."""

from rankscope.lab.paper import Study
from rankscope.studies.pruning.claims import CLAIMS
from rankscope.studies.pruning.experiments import experiments
from rankscope.studies.pruning.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
