"""What each paper says, and nothing else: one folder per paper, on top of the engine."""
