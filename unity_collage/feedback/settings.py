"""How much is done beyond the search, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from .breeding import Breeding

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How much is done beyond the search."""

    feedback: int = 2
    """How often the search is asked again with prices from the running program, at most."""
    rounds: int = 7
    """Interleaved rounds of the last race."""
    round_seconds: float = 0.3
    """How long each program runs in a round, at least."""
    margin: float = 0.01
    """By how much of our time another program must be faster to be preferred: below, it is a tie."""
    tolerance: float = 1e-3
    """Largest difference of outputs, over their range, between two programs; with bfloat16 5e-2 if this is less."""
    breeding: Breeding | None = None
    """Breed plans by measured time before the last race; None: do not."""


@dataclass(frozen=True, slots=True)
class Refined:
    """The winner, ready to run, and what happened."""

    mod: IRModule
    executable: relax.VMExecutable
    report: dict[str, Any]
    """Plain data: each program's median seconds by round or why it is out, the additive error, the winner."""
