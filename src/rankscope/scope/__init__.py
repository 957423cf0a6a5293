"""The instruments on a checkpoint: heads, updates and neurons, and what they export."""
