"""BuilderPool: the processes that build kernels for servers, one for each usable core."""

from __future__ import annotations

from collections.abc import Mapping
from queue import LifoQueue
from typing import Any

from ...errors import CollageError
from ...machine.environment import half_of_memory, usable_cores
from ...processes.child import Child, NoAnswer
from ..client import why_no_answer
from ..refusal import Refusal
from .messages import refusal_in

_BUILDER = "unity_collage.measure.remote.builder"

_ATTEMPTS = 2
"""A kernel is refused after it has ended this many processes: the first end may have had another cause."""


class BuilderPool:
    """Serves requests of several threads at once. Another process starts when the others are busy."""

    def __init__(self, timeout_seconds: float):
        self._all = [Child(_BUILDER, {}, timeout_seconds) for _ in usable_cores()]
        # Last in, first out: processes that are not needed never start.
        self._idle: LifoQueue[Child] = LifoQueue()
        for child in reversed(self._all):
            self._idle.put(child)
        self._is_closed = False

    def why_not_built(self, request: Mapping[str, Any]) -> Refusal | None:
        """Why a process has not built a kernel, or None; waits for a process that is idle.

        Raises CollageError once the pool is closed.
        """
        child = self._idle.get()
        try:
            return self._asked(child, request)
        finally:
            if self._is_closed:  # it may have started since
                child.close()
            self._idle.put(child)

    def _asked(self, child: Child, request: Mapping[str, Any]) -> Refusal | None:
        refusal = None
        for _ in range(_ATTEMPTS):
            if self._is_closed:
                raise CollageError("the processes that build kernels are closed")
            try:
                return refusal_in(next(child.messages(request)))
            except NoAnswer as error:
                refusal = why_no_answer(error, half_of_memory())
            if not refusal.misbehaved:
                break
        return refusal

    def close(self) -> None:
        """End the processes for good."""
        self._is_closed = True
        for child in self._all:
            child.close()
