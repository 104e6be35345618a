"""What one row of the cost database says, as values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from ..plan.costs import Cost


class Kind(str, Enum):
    """How a kernel misbehaved."""

    CRASH = "crash"
    HANG = "hang"
    OUT_OF_MEMORY = "out of memory"
    WRONG_NUMBERS = "wrong numbers"
    NOT_FINITE = "not finite"
    WROTE_OUTSIDE = "wrote outside"
    EXITED = "exited"
    COMPILE_ERROR = "compile error"
    RUN_ERROR = "run error"


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one kernel costs, or why it has no cost, and under which circumstances that was found."""

    key: str
    """The workload's: backend, computation with its shapes and dtypes, where its weights are."""
    fingerprint: str
    """Digest of the text that names everything else that can change the answer."""
    label: str
    backend: str
    seconds: float | None
    low: float
    high: float
    runs: int
    reason: str
    lasting: bool
    """Whether the answer holds for the next run too; a timeout may be the load of the machine."""
    workload: str
    """Digest of the function that was measured, where its text is kept; else empty."""
    created: float
    """Seconds since the epoch."""

    @property
    def cost(self) -> Cost:
        return Cost(self.seconds, self.low, self.high, self.runs, "database", self.reason)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A kernel that misbehaved: it is not built again as long as its backend has this version."""

    key: str
    version: str
    """The backend's own fingerprint: name, version, instruction set."""
    label: str
    backend: str
    kind: Kind
    reason: str
    created: float = 0.0
    """Seconds since the epoch; set by the database."""


def digest(text: str) -> str:
    """A short name for a text: equal texts are one row."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
