"""What was decided and why, for people and for programs."""

from ..plan.explanation import Explanation
from .answer import answer
from .html import html_report
from .kinds import explanation_summary
from .text import (
    backend_table,
    bench_table,
    comparison_table,
    cost_remark,
    duration,
    kernel_table,
    plan_summary,
)

__all__ = [
    "Explanation",
    "answer",
    "backend_table",
    "bench_table",
    "comparison_table",
    "cost_remark",
    "duration",
    "explanation_summary",
    "html_report",
    "kernel_table",
    "plan_summary",
]
