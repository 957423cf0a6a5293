"""Memory against rule: how many distinct batches does it take until an encoder learns the task?"""

from rankscope.lab.paper import Study
from rankscope.studies.memory.claims import CLAIMS
from rankscope.studies.memory.experiments import experiments
from rankscope.studies.memory.figures import figures

STUDY = Study(experiments, CLAIMS, figures)
