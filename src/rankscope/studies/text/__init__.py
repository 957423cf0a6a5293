"""Points that look like text: how much rank does nearest neighbour need where points are not isotropic?"""

from rankscope.lab.paper import Study
from rankscope.studies.text.claims import CLAIMS
from rankscope.studies.text.experiments import experiments
from rankscope.studies.text.figures import figures
from rankscope.studies.text.findings import findings

STUDY = Study(experiments, CLAIMS, figures, findings)
