"""Models that need no training: their weights are written down, and their errors are known exactly."""
