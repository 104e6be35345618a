"""Whole programs in a process of their own: run in turns, or with a clock between their kernels."""

from .clocked import Clocked, by_candidate, medians
from .contest import Contest
from .digest import program_digest
from .inputs import harmless_inputs, why_not_runnable
from .ticks import InsertTicks, ticked_kernels

__all__ = [
    "Clocked",
    "Contest",
    "InsertTicks",
    "by_candidate",
    "harmless_inputs",
    "medians",
    "program_digest",
    "ticked_kernels",
    "why_not_runnable",
]
