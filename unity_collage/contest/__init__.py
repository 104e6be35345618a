"""Whole programs in a process of their own: run in turns, or with a clock between their kernels."""

from .contest import Contest
from .ticks import InsertTicks, ticked_kernels

__all__ = ["Contest", "InsertTicks", "ticked_kernels"]
