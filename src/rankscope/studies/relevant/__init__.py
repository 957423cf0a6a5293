"""k label-relevant patterns, in k classes or fewer: does the rank of the update follow k?"""

from rankscope.lab.paper import Study
from rankscope.studies.relevant.claims import CLAIMS
from rankscope.studies.relevant.experiments import experiments
from rankscope.studies.relevant.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
