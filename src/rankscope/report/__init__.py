"""The page and the figures: reads tables and verdicts, computes nothing."""
