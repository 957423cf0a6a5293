"""Real models, read lazily."""
