"""Three questions to real data: a published model fine-tuned on sentences, a small ViT on digits."""

from rankscope.lab.paper import Study
from rankscope.studies.real.claims import CLAIMS
from rankscope.studies.real.experiments import experiments
from rankscope.studies.real.figures import figures
from rankscope.studies.real.findings import findings

STUDY = Study(experiments, CLAIMS, figures, findings)
