"""The examiner's end of a worker process: sends requests, and raises the reason if there is no reply."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ...database.rows import FailureKind
from ...machine.environment import half_of_memory
from ...measure.client import why_no_answer
from ...measure.loaded import LOADED
from ...measure.refusal import Refusal
from ...processes.child import Child, NoAnswer

Answer = dict[str, Any]


class Failure(Exception):
    """There is no reply; ``reason`` says why, and ``stage`` what the process was doing."""

    def __init__(self, refusal: Refusal, stage: str, ended: bool):
        super().__init__(refusal.reason)
        self.reason = refusal.reason
        self.kind = refusal.kind
        self.stage = stage
        self.ended = ended
        """Whether the process has ended."""


class Subject:
    """A worker process that has imported the backend ``where``, or no backend if it is None.

    Use as a context manager.
    """

    def __init__(
        self, where: str | None, threads: int, timeout_seconds: float, memory_bytes: int | None = None
    ):
        # ``where`` may name a module in the working directory; installed packages come first.
        path = [*(str(Path(folder).absolute()) for folder in sys.path if folder), str(Path.cwd())]
        self._memory_bytes = memory_bytes or half_of_memory()
        hello = {"path": path, "threads": threads, "memory_bytes": self._memory_bytes}
        self._child = Child("unity_collage.testing.conformance.worker", hello, timeout_seconds, loaded=LOADED)
        self._where = where
        self._has_met = False
        self.ended = 0
        """How many processes have ended because of the backend."""

    def ask(self, ask: str, **arguments: Any) -> Answer:
        """The reply; raises Failure where there is none."""
        if not self._child.is_running:
            self._has_met = False
        if self._where is not None and not self._has_met and ask != "meet":
            self._asked({"ask": "meet", "where": self._where})
        self._has_met = True
        return self._asked({"ask": ask, **arguments})

    def close(self) -> None:
        """End the process; the next question starts another."""
        self._child.close()

    def __enter__(self) -> Subject:
        """Start the process early: it imports its modules while the caller does other work."""
        self._child.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, request: Answer) -> Answer:
        try:
            message = next(self._child.messages(request))
        except NoAnswer as error:
            self.ended += 1
            refusal = why_no_answer(error, self._memory_bytes)
            if error.is_silent:
                refusal = Refusal(refusal.reason, FailureKind.HANG)
            raise Failure(refusal, error.stage, ended=True) from error
        if "reply" in message:
            return message["reply"]
        raise self._failure(message)

    def _failure(self, message: Answer) -> Failure:
        kind, ended = message["kind"], message.get("ended", False)
        refusal = Refusal(message["reason"], None if kind is None else FailureKind(kind))
        if ended or refusal.kind is FailureKind.OUT_OF_MEMORY:
            self.ended += 1
            self.close()
        return Failure(refusal, self._child.stage, ended)
