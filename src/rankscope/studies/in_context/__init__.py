"""Rank in context: how much of it does a head use, and does too little of it leave an error that no training removes?"""

from rankscope.lab.paper import Study
from rankscope.studies.in_context.claims import CLAIMS
from rankscope.studies.in_context.figures import figures

STUDY = Study(lambda scale: [], CLAIMS, figures)
"""It trains nothing of its own: garg2022's decoders are looked at."""
