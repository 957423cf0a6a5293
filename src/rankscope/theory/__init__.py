"""Theory you can compute with, free of torch: how much error is unavoidable, and how many heads it takes at least.

>>> round(error_floor(dim=64, rank=8, heads=8), 4)
0.1768
>>> min_heads(dim=64, rank=8, error=0.1)
6016
>>> min_heads(dim=64, rank=1, error=0.05, values="identity", certified=True)
1622224468340211918
>>> heads_for_failure(dim=64, failure=0.1)
1461
"""

from rankscope.theory.heads.answers import (
    assumptions,
    error_floor,
    error_floor_enclosure,
    failure_rate,
    head_range,
    heads_for_failure,
    match3_communication,
    min_heads,
    plan,
    standard_heads,
)
from rankscope.theory.heads.certified import Enclosure, HeadRange, UndecidedError
from rankscope.theory.heads.match3 import Communication
from rankscope.theory.heads.plan import COVERS

__all__ = [
    "COVERS",
    "Communication",
    "Enclosure",
    "HeadRange",
    "UndecidedError",
    "assumptions",
    "error_floor",
    "error_floor_enclosure",
    "failure_rate",
    "head_range",
    "heads_for_failure",
    "match3_communication",
    "min_heads",
    "plan",
    "standard_heads",
]
