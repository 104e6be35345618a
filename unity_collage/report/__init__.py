"""What was decided and why, for people and for programs."""

from .text import backend_table, kernel_table

__all__ = ["backend_table", "kernel_table"]
