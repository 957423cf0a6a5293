"""A mean over independent samples, and how far it may be off."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean over independent samples, and its standard error."""

    mean: float
    standard_error: float

    def distance(self, value):
        """|mean − value| in standard errors."""
        return abs(self.mean - value) / self.standard_error


def estimate(samples):
    """The mean of the samples and the standard error of that mean."""
    return Estimate(float(samples.mean()), float(samples.std() / math.sqrt(len(samples))))
