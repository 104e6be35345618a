"""Plain data in, cheapest cover out."""

from .dijkstra import cheapest_cover
from .problem import NoCover, Option, Problem, Solution, why_not_cover

__all__ = ["NoCover", "Option", "Problem", "Solution", "cheapest_cover", "why_not_cover"]
