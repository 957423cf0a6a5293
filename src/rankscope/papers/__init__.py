"""One folder a paper, on top of the engine."""
