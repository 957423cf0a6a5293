"""Tasks with a known answer."""
