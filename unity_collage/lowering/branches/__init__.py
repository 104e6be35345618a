"""Runs independent branches of a program side by side: a branch on each core instead of each kernel on all cores."""

from .calls import Calls
from .merge import staged
from .stages import Stage, Step, stages_of

__all__ = ["Calls", "Stage", "Step", "staged", "stages_of"]
