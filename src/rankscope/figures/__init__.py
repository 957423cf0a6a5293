"""A figure as a value, and its two renderers: interactive for the page, printed for PNG and PDF."""
