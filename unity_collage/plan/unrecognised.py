"""Near misses of the rewrites, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """A rewrite rule matched the beginning of its form at this binding, but did not apply."""

    rule: str
    binding: str
    """The name of the variable after Prepare."""
    op: str
    reason: str
    matched: int = 1
    """How many operators of the form matched."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A near miss in the partitioned function."""

    rule: str
    reason: str
    bindings: tuple[int, ...]
    """The binding that the rule did not rewrite, then those of the chain that it is in."""
