"""The examiner's end of a worker process: asks, waits for so long, and starts another process after a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ...database.rows import Kind
from ...machine.environment import half_of_memory
from ...measure.refusal import Refusal, ended
from ...processes.child import STARTING_SECONDS, Gone, Process

_COMMAND = ("-m", "unity_collage.processes.launcher", "unity_collage.testing.conformance.worker")

Answer = dict[str, Any]


class Failure(Exception):
    """There is no answer, for a reason; what the process was doing is its ``stage``."""

    def __init__(self, refusal: Refusal, stage: str, ended: bool):
        super().__init__(refusal.reason)
        self.reason = refusal.reason
        self.kind = refusal.kind
        self.stage = stage
        self.ended = ended
        """Whether it has ended the process."""


class Subject:
    """A worker process that has met the backend ``where``; None: it has met nobody. Use as a context manager."""

    def __init__(
        self, where: str | None, threads: int, timeout_seconds: float, memory_bytes: int | None = None
    ):
        # A module in the working directory may be named too; installed packages come first.
        path = [*(str(Path(folder).absolute()) for folder in sys.path if folder), str(Path.cwd())]
        self._hello: dict[str, Any] = {
            "path": path,
            "threads": threads,
            "memory_bytes": memory_bytes or half_of_memory(),
        }
        self._where = where
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None
        self._is_new = True
        self._stage = ""
        self.ended = 0
        """How many processes it has ended."""

    def ask(self, ask: str, **arguments: Any) -> Answer:
        """The reply; raises Failure where there is none."""
        self._stage = "answering"
        try:
            if self._process is None:
                self._process, self._is_new = Process(_COMMAND, self._hello), True
            if self._is_new and self._where is not None and ask != "meet":
                self._send("meet", {"where": self._where})
            return self._send(ask, arguments)
        except (Gone, TimeoutError) as error:
            raise self._why_no_answer(error) from error

    def close(self) -> None:
        """End the process; the next question starts another."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def __enter__(self) -> Subject:
        """The process is started: it imports while others are asked."""
        self._process = Process(_COMMAND, self._hello)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, ask: str, arguments: Answer) -> Answer:
        assert self._process is not None
        seconds = STARTING_SECONDS if self._is_new else self._timeout_seconds
        self._process.send({"ask": ask, **arguments})
        while True:
            message = self._process.receive(seconds)
            self._is_new = False
            if "stage" in message:
                self._stage, seconds = message["stage"], self._timeout_seconds
            elif "reply" in message:
                return message["reply"]
            else:
                raise self._failure(message)

    def _failure(self, message: Answer) -> Failure:
        kind, ended = message["kind"], message.get("ended", False)
        refusal = Refusal(message["reason"], None if kind is None else Kind(kind))
        if ended or refusal.kind is Kind.OUT_OF_MEMORY:
            self._end()
        return Failure(refusal, self._stage, ended)

    def _why_no_answer(self, error: Exception) -> Failure:
        assert self._process is not None
        if isinstance(error, Gone):
            refusal = ended(self._process.ending(), int(self._hello["memory_bytes"]))
        else:
            refusal = Refusal(
                f"no answer within {self._timeout_seconds:g} s while {self._stage or 'starting'}", Kind.HANG
            )
        self._end()
        return Failure(refusal, self._stage, ended=True)

    def _end(self) -> None:
        self.ended += 1
        self.close()
