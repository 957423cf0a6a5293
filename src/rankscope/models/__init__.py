"""Models whose rank is a setting."""
