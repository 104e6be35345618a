"""A compiled model that can be called, timed and saved, and how it is read back.

Nothing here imports TVM's compiler: a process that runs a saved program needs TVM's runtime only.
"""

from .compiled import Program
from .loading import load

__all__ = ["Program", "load"]
