"""The page and the figures: reads tables and verdicts, computes nothing."""

from rankscope.report.html import Section, write_report

__all__ = ["Section", "write_report"]
