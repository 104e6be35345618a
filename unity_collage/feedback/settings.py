"""How much is done beyond the search, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax
from tvm.ir import IRModule

from ..plan.comparison import ProgramComparison
from .breeding import Breeding

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How much is done beyond the search."""

    feedback: int = 2
    """How often the search is asked again with costs from the running programs, at most."""
    rounds: int = 7
    """Rounds at the end, in which all programs run in turns."""
    round_seconds: float = 0.3
    """How long each program runs in a round, at least."""
    margin: float = 0.01
    """By how much of our time another program must be faster to be preferred: below, it is a tie."""
    tolerance: float = 1e-3
    """Largest difference of outputs, over their range, between two programs; with bfloat16 5e-2 if this is less."""
    breeding: Breeding | None = None
    """Breed plans by measured time before the last rounds; None: do not."""


@dataclass(frozen=True, slots=True)
class Refined:
    """The winner, ready to run, and what happened."""

    mod: IRModule
    executable: relax.VMExecutable
    report: ProgramComparison
