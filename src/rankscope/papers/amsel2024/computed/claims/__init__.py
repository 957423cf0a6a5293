"""Every statement of the talk that can be computed, as printed there, and its correction where it does not hold.

A statement whose source is "not in the talk" is ours: the correction of one beside it, or what the talk leaves to be
worked out.
"""

from rankscope.papers.amsel2024.computed.claims import bounds, harmonics, random_heads

CLAIMS = (*bounds.CLAIMS, *harmonics.CLAIMS, *random_heads.CLAIMS)
