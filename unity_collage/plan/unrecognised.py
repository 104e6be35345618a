"""Near misses of the rewrites, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """A rewrite rule found the beginning of its form at this binding, and left it as it is."""

    rule: str
    binding: str
    """The name that the variable has when Prepare is done."""
    op: str
    reason: str
    matched: int = 1
    """How many operators of the form were found."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The same in the function that was partitioned."""

    rule: str
    reason: str
    bindings: tuple[int, ...]
    """The binding that the rule left, then those of the chain that it is in."""
