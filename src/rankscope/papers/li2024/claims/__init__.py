"""Every statement of li2024 that can be measured: the figures, theorem 1, remark 1 and corollary 1."""

from rankscope.papers.li2024.claims import proved, shown
from rankscope.papers.li2024.claims.shown import CLEARLY_WORSE, TWO_GROUPS, at_end

CLAIMS = (*shown.CLAIMS, *proved.CLAIMS)

__all__ = ["CLAIMS", "CLEARLY_WORSE", "TWO_GROUPS", "at_end"]
