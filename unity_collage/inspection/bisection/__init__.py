"""``bisect``: the smallest set of offloaded kernels that makes a program wrong or slow."""

from .bisect import bisect
from .found import Bisection, Suspect

__all__ = ["Bisection", "Suspect", "bisect"]
