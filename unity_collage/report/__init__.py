"""What was decided and why, for people and for programs."""

from ..plan.explanation import Explanation
from .answer import answer
from .html import html_report
from .kinds import explanation_summary
from .text import (
    backend_table,
    bench_table,
    duration,
    kernel_table,
    plan_summary,
    price_remark,
    refinement_table,
)

__all__ = [
    "Explanation",
    "answer",
    "backend_table",
    "bench_table",
    "duration",
    "explanation_summary",
    "html_report",
    "kernel_table",
    "plan_summary",
    "price_remark",
    "refinement_table",
]
