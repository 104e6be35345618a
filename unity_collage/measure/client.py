"""The parent's end of the worker: asks, waits for so long, and starts another process after a crash.

Whoever ends the worker, or keeps it busy for too long, is refused; the others are asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any

from ..annotations import Cost
from ..cost.method import Method
from ..database.rows import Kind
from ..machine.environment import environment, half_of_memory
from ..processes.child import STARTING_SECONDS, Gone, Process
from .refusal import Refusal, ended

Answer = Cost | Refusal

_STARTING, _ASKED = "starting", "reading the question"

_TOGETHER = ("comparing", "timing")
"""Stages of all kernels of a question at once."""


def worker_environment() -> dict[str, str]:
    """The environment of a process that measures."""
    return environment()


class WorkerClient:
    """One worker process, started when first asked and kept until it ends or is closed."""

    def __init__(
        self,
        threads: int,
        method: Method,
        timeout_seconds: float,
        memory_bytes: int | None = None,
        command: tuple[str, ...] = ("-m", "unity_collage.processes.launcher", "unity_collage.measure.worker"),
    ):
        self._command = command
        self._hello: dict[str, Any] = {
            "threads": threads,
            "method": asdict(method),
            "memory_bytes": memory_bytes or half_of_memory(),
        }
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None
        self._stage = _STARTING
        self._suspect: str | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's one reply; a crash or a silence longer than the limit is a reply with a ``reason``."""
        try:
            process = self._connected()
            process.send(dict(request))
            return process.receive(self._timeout_seconds)
        except (Gone, TimeoutError) as error:
            return {"reason": self._why_no_answer(error).reason}

    def race(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        """A price or a refusal for each of ``candidates``, which are built, checked and timed together."""
        answers: dict[str, Answer] = {}
        pending = [dict(candidates)]
        while pending:
            group = pending.pop(0)
            problem = self._asked(request, group, answers)
            left = {key: asked for key, asked in group.items() if key not in answers}
            if not left:
                continue
            if self._suspect in left:
                answers[self._suspect] = problem
                del left[self._suspect]
                pending += [left] if left else []
            elif len(left) == 1 or self._stage not in _TOGETHER:
                answers.update(dict.fromkeys(left, problem))
            else:  # it was one of them
                pending += [{key: asked} for key, asked in left.items()]
        return answers

    def close(self) -> None:
        """End the worker process; the next question starts another."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> Process:
        self._stage, self._suspect = _STARTING, None
        if self._process is None:
            self._process = Process(self._command, self._hello)
            self._process.receive(STARTING_SECONDS)
        self._stage = _ASKED
        return self._process

    def _asked(
        self, request: Mapping[str, Any], group: Mapping[str, Any], answers: dict[str, Answer]
    ) -> Refusal:
        """Put what the worker says about ``group`` into ``answers``; the result is about what is then missing."""
        try:
            process = self._connected()
            process.send({**request, "candidates": dict(group)})
            while True:
                reply = process.receive(self._timeout_seconds)
                if "key" in reply and "stage" not in reply:
                    answers[reply["key"]] = _answer(reply)
                elif "stage" in reply:
                    self._stage, self._suspect = reply["stage"], reply["key"]
                elif "fault" in reply:
                    self.close()
                    return Refusal(reply["fault"], Kind(reply["kind"]))
                else:
                    return self._at_end(reply, answers)
        except (Gone, TimeoutError) as error:
            return self._why_no_answer(error)

    def _at_end(self, reply: Mapping[str, Any], answers: Mapping[str, Answer]) -> Refusal:
        """What is missing after the last reply; a process whose memory ran out is ended: it may not come back."""
        if any(
            isinstance(answer, Refusal) and answer.kind is Kind.OUT_OF_MEMORY for answer in answers.values()
        ):
            self.close()
        return Refusal(reply.get("reason", "the worker gave no answer"))

    def _why_no_answer(self, error: Exception) -> Refusal:
        """What the end or the silence of the worker means for whom it was busy with; the process is no more."""
        process, self._process = self._process, None
        assert process is not None
        try:
            if isinstance(error, Gone):
                ending = process.ending()
                refusal = ended(ending, int(self._hello["memory_bytes"]))
                if self._stage != _STARTING:
                    return refusal
                return Refusal(f"{refusal.reason}: {ending.last_words}".rstrip(": "), lasting=False)
        finally:
            process.close()
        # A slow compiler may be a busy machine; a kernel that has not come back after so long never will.
        kind = Kind.HANG if self._stage in ("running", "timing") else None
        seconds = STARTING_SECONDS if self._stage == _STARTING else self._timeout_seconds
        reason = f"no answer within {seconds:g} s while {self._stage}"
        return Refusal(reason, kind, lasting=kind is not None)


def _answer(reply: Mapping[str, Any]) -> Answer:
    if "reason" in reply:
        return Refusal(reply["reason"], None if reply["kind"] is None else Kind(reply["kind"]))
    return Cost(reply["seconds"], reply["low"], reply["high"], reply["runs"])
