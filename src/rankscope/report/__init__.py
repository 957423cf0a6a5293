"""The page and the figures: reads tables and verdicts, computes nothing."""

from rankscope.report.html import Section, write_report
from rankscope.report.scope import ScopePage, write_scope_page

__all__ = ["ScopePage", "Section", "write_report", "write_scope_page"]
