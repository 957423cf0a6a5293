"""Every statement of the talk that was trained, built or bounded, as a check over all seeds."""

from rankscope.papers.amsel2024.claims import built, memory, trained

CLAIMS = (*trained.CLAIMS, *memory.CLAIMS, *built.CLAIMS)
