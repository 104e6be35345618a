"""Session: the worker process that many requests share, because starting one takes seconds."""

from __future__ import annotations

import time
from dataclasses import asdict

from ..cost.method import Method
from ..machine.peaks import Machine
from .client import ON_CPU, Worker, WorkerClient
from .packed import PackedCosts


class Session:
    """Holds a worker between requests; a worker with other settings replaces it."""

    def __init__(self) -> None:
        self._client: WorkerClient | None = None
        self._settings: tuple[object, ...] = ()
        self._started: float | None = None
        self.is_stopped = False
        """Whether nothing more is to be measured."""
        self.share = 1.0
        """The part of the time that may be used up after the current function and those before it."""
        self.finishing = 0.0
        """The part of the budget at which the last new costs end; 0 before they begin."""
        self.seconds_again = 0.0
        """Seconds that went into measuring known costs again."""
        self.measured: set[str] = set()
        """The keys of the costs, and the names of the facts, that were measured in this session."""
        self.packs: PackedCosts | None = None
        """The packs of costs, once they are read."""
        self.peaks: dict[int, Machine] = {}
        """The peaks of this machine by number of threads, once they are known."""
        self.again: dict[str, float] = {}
        """When the measurement of facts that were known already began, by name."""

    def is_unused(self) -> bool:
        """Whether there was no request yet."""
        return self._started is None and not (self.measured or self.peaks or self.packs)

    def seconds_since_start(self) -> float:
        """Seconds since the first call of this method."""
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        return now - self._started

    def client(
        self,
        threads: int,
        method: Method,
        timeout_seconds: float,
        memory_bytes: int | None,
        worker: Worker = ON_CPU,
        objects: str | None = None,
    ) -> WorkerClient:
        """The worker with these settings; its process starts with the first question."""
        settings = (threads, *asdict(method).items(), timeout_seconds, memory_bytes, worker, objects)
        if self._client is None or settings != self._settings:
            self.close()
            self._client = WorkerClient(threads, method, timeout_seconds, memory_bytes, worker, objects)
            self._settings = settings
        return self._client

    def close(self) -> None:
        """End the worker process, if there is one."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def __del__(self) -> None:
        self.close()
