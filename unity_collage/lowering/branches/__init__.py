"""Independent branches of a program side by side: each on a core of its own, in place of every kernel on all cores."""

from .calls import Calls
from .merge import staged
from .stages import Stage, Step, stages_of

__all__ = ["Calls", "Stage", "Step", "staged", "stages_of"]
