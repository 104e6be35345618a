"""What was decided and why, for people and for programs."""

from .text import backend_table, bench_table, duration, kernel_table, plan_summary

__all__ = ["backend_table", "bench_table", "duration", "kernel_table", "plan_summary"]
