"""What a running program teaches the costs."""

from .breeding import Breeding
from .settings import Refinement

__all__ = ["Breeding", "Refinement"]
