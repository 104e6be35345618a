"""Refusal: why a kernel gets no cost."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from ..database.rows import FailureKind
from ..errors import first_line
from ..processes.process import Ending

_NEARLY = 0.8
"""A process that ended with more than this part of its memory in use has run out of memory."""
_NO_MEMORY = ("bad_alloc", "cudaErrorMemoryAllocation", "out of memory", "STATUS_ALLOC_FAILED")
"""The messages of C++, CUDA, TVM, cuBLAS and cuDNN when memory has run out."""
_SHORT_OF = (
    "No space left on device",
    "Too many open files",
    "can't start new thread",
    "Resource temporarily unavailable",
)
"""The messages of a system that is short of something: they say nothing about the kernel."""
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that people, supervisors and a system that is short of memory send, and kernels do not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a kernel has no cost, and how it misbehaved if it did."""

    reason: str
    kind: FailureKind | None = None
    """None: the kernel did not misbehave. It cannot be built, or its numbers cannot be checked."""
    lasting: bool = True
    """Whether the answer holds for the next run too."""
    is_from_outside: bool = False
    """Whether the process that was busy with the kernel was ended from outside."""
    is_late: bool = False
    """Whether the kernel was not begun, since the time for the question was over."""

    @property
    def misbehaved(self) -> bool:
        """Whether a process ended or hung, whatever the cause."""
        return self.kind is not None or self.is_from_outside

    @property
    def text(self) -> str:
        """The reason with the kind before it."""
        return self.reason if self.kind is None else f"{self.kind.value}: {self.reason}"


class Refused(Exception):
    """Carries a refusal to the code that makes the reply about the kernel."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.text)
        self.refusal = refusal


def refusal_of(error: Exception, kind: FailureKind) -> Refusal:
    """The refusal for an error of a foreign compiler or kernel. One of the system does not last, and has no kind."""
    text = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, MemoryError) or any(said in text for said in _NO_MEMORY):
        return Refusal("memory ran out", FailureKind.OUT_OF_MEMORY)
    if isinstance(error, OSError) or any(said in text for said in _SHORT_OF):
        return Refusal(text, lasting=False)
    return Refusal(text, kind)


def ended(ending: Ending, memory_bytes: int) -> Refusal:
    """The refusal of the kernel that a worker process was busy with when it ended.

    ``memory_bytes``: how much memory the process was allowed to use.
    """
    if ending.peak_bytes > _NEARLY * memory_bytes:
        return Refusal(
            f"the process ended with {ending.peak_bytes >> 20} MiB in use", FailureKind.OUT_OF_MEMORY
        )
    if -ending.code in _FROM_OUTSIDE:
        used = f"{ending.peak_bytes >> 20} MiB in use"
        return Refusal(
            f"the process was ended from outside: {ending.signal_name}, with {used}",
            lasting=False,
            is_from_outside=True,
        )
    if ending.code < 0:
        return Refusal(f"it crashed the process: {ending.signal_name}", FailureKind.CRASH)
    return Refusal(f"it ended the process with exit code {ending.code}", FailureKind.EXITED)
