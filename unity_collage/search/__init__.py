"""Search: a partitioning problem as plain data in, a cheapest plan out."""

from .auto import quick
from .exact import cheapest_cover
from .problem import NoCover, Option, Problem, Solution
from .throughs import Through, best_throughs, best_withouts

__all__ = [
    "NoCover",
    "Option",
    "Problem",
    "Solution",
    "Through",
    "best_throughs",
    "best_withouts",
    "cheapest_cover",
    "quick",
]
