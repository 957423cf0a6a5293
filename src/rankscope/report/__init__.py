"""The page: renders sections, judges nothing and computes nothing."""

from rankscope.report.html import write_report
from rankscope.report.scope import write_scope_page

__all__ = ["write_report", "write_scope_page"]
