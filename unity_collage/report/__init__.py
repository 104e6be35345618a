"""Plans, explanations and databases of costs for people: tables, sentences, the HTML page."""

from .cells import duration
from .plans import plan_summary
from .programs import program_table
from .tables import backend_table, bench_table, comparison_line, comparison_table, cost_remark

__all__ = [
    "backend_table",
    "bench_table",
    "comparison_line",
    "comparison_table",
    "cost_remark",
    "duration",
    "plan_summary",
    "program_table",
]
