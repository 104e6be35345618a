"""Closing the loop: whole programs are timed, and what they teach goes back into the plan."""

from .breeding import Breeding
from .loop import refined
from .settings import Refined, Refinement

__all__ = ["Breeding", "Refined", "Refinement", "refined"]
