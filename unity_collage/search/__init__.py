"""Plain data in, cheapest plan out."""

from .exact import Through, best_throughs, best_withouts, cheapest_cover
from .problem import NoCover, Option, Problem, Solution

__all__ = [
    "NoCover",
    "Option",
    "Problem",
    "Solution",
    "Through",
    "best_throughs",
    "best_withouts",
    "cheapest_cover",
]
