"""The instruments on a checkpoint."""
