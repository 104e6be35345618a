"""BuilderPool: the processes that build kernels for servers, one for each usable core."""

from __future__ import annotations

from collections.abc import Mapping
from queue import LifoQueue
from typing import Any

from ...machine.environment import usable_cores
from ...processes.child import Child, Reply

_BUILDER = "unity_collage.measure.remote.builder"


class BuilderPool:
    """Serves requests of several threads at once. Another process starts when the others are busy."""

    def __init__(self, timeout_seconds: float):
        self._all = [Child(_BUILDER, {}, timeout_seconds) for _ in usable_cores()]
        # Last in, first out: processes that are not needed never start.
        self._idle: LifoQueue[Child] = LifoQueue()
        for child in reversed(self._all):
            self._idle.put(child)

    def ask(self, request: Mapping[str, Any]) -> Reply:
        """The reply of a process, after waiting for one that is idle."""
        child = self._idle.get()
        try:
            return child.ask(request)
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """End the processes."""
        for child in self._all:
            child.close()
