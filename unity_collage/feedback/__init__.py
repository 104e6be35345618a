"""Feedback from running programs to costs and plans."""

from .breeding import Breeding
from .settings import Refinement

__all__ = ["Breeding", "Refinement"]
