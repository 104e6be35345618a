"""The rows of the cost database as values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from ..plan.costs import Cost


class FailureKind(str, Enum):
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
    """The cost of one kernel, or why it has none, with the fingerprint that it was measured with."""

    key: str
    """The key of the workload: backend, computation with shapes and dtypes, and evicted bytes."""
    fingerprint: str
    """Digest of the text that lists everything else that can change the cost."""
    label: str
    backend: str
    seconds: float | None
    low: float
    high: float
    runs: int
    reason: str
    lasting: bool
    """Whether the answer holds for the next run too; a timeout may come from the load of the machine."""
    workload: str
    """Digest of the function that was measured, if its text is stored; else empty."""
    doubtful: bool
    """Whether other work of the machine disturbed the measurement."""
    created: float
    """Seconds since the epoch."""

    @property
    def cost(self) -> Cost:
        """The cost or refusal, with origin ``database``."""
        return Cost(self.seconds, self.low, self.high, self.runs, "database", self.reason, self.doubtful)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A kernel that misbehaved. It is not built again while its backend has this version."""

    key: str
    version: str
    """The backend's own fingerprint: name, version, instruction set."""
    label: str
    backend: str
    kind: FailureKind
    reason: str
    created: float = 0.0
    """Seconds since the epoch; set by the database."""


def digest(text: str) -> str:
    """A short digest of a text; equal texts share one row."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FOR_TARGET = " for target "


def with_target(version: str, target: str) -> str:
    """The version and target that a quarantine entry holds for."""
    return f"{version}{_FOR_TARGET}{digest(target)}"


def without_target(version: str) -> str:
    """The version of the backend in what :func:`with_target` made."""
    return version.partition(_FOR_TARGET)[0]
