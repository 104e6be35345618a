"""Refusal: why a kernel gets no cost."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from ..database.rows import Kind
from ..errors import first_line
from ..processes.child import Ending

_NEARLY = 0.8
"""A process that ended with so much of its memory in use has ended for want of more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason, and how the kernel misbehaved if it did."""

    reason: str
    kind: Kind | None = None
    """None: nothing is wrong with the kernel. Another kernel cannot be made, or nobody can judge this one."""
    lasting: bool = True
    """Whether the answer holds for the next run too."""

    @property
    def text(self) -> str:
        """The reason with the kind before it."""
        return self.reason if self.kind is None else f"{self.kind.value}: {self.reason}"


class Refused(Exception):
    """Carries a refusal to where the kernel's answer is made."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.text)
        self.refusal = refusal


def refusal_of(error: Exception, kind: Kind) -> Refusal:
    """What an error of a foreign compiler or kernel means."""
    text = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, MemoryError) or "bad_alloc" in text:
        return Refusal("memory ran out", Kind.OUT_OF_MEMORY)
    return Refusal(text, kind)


def ended(ending: Ending, memory_bytes: int) -> Refusal:
    """What the end of a worker process, which might use so much memory, says of the kernel that it was busy with."""
    if ending.code == -signal.SIGKILL or ending.peak_bytes > _NEARLY * memory_bytes:
        return Refusal(f"the process ended with {ending.peak_bytes >> 20} MiB in use", Kind.OUT_OF_MEMORY)
    if ending.code < 0:
        return Refusal(f"it crashed the process: {ending.signal_name}", Kind.CRASH)
    return Refusal(f"it ended the process with exit code {ending.code}", Kind.EXITED)
