"""Depth against the number of points: does depth help heads of low rank less when there are more points?"""

from rankscope.lab.paper import Study
from rankscope.studies.many_points.claims import CLAIMS
from rankscope.studies.many_points.experiments import experiments
from rankscope.studies.many_points.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
