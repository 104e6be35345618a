"""Runs all jobs in processes that may fail: a step that ends its process, or takes too long, is a reason in a row."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .child import MODEL, REFERENCE, TIMING
from .jobs import Job, Settings, competitor_of

ROOT = Path(__file__).resolve().parents[2]
_CHILD = (sys.executable, "-m", "benchmarks.gpu.child")

Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]


class OutOfTime(Exception):
    """The time of the whole run is over."""


class Runner:
    """Runs jobs one after the other, and starts a new process where one has ended."""

    def __init__(
        self,
        settings: Settings,
        keep: Keep,
        say: Say,
        limit: float = 240.0,
        end: float | None = None,
        command: Sequence[str] = _CHILD,
    ) -> None:
        """``keep`` gets each row. ``limit``: seconds of a step. ``end``: by :func:`time.monotonic`, for all of it."""
        self._settings, self._keep, self._say = settings, keep, say
        self._limit, self._end, self._command = limit, end, command
        self._step = ""
        self._failure: str | None = None

    def run(self, jobs: Sequence[Job]) -> list[Job]:
        """Runs ``jobs``; those that there was no time for are returned."""
        left = list(jobs)
        while left:
            try:
                done, reason = self._process(left)
            except OutOfTime:
                return left[self._done :]
            left = left[done:]
            if left and reason is not None:
                left = self._without_step(left, reason)
        return []

    def _without_step(self, left: list[Job], reason: str) -> list[Job]:
        """The jobs after a process has ended in the first one."""
        job, step = left[0], competitor_of(self._step)
        self._say(f"{job.title}: {step}: {reason}")
        if step in job.competitors and step not in job.failed:
            return [job.without(step, reason), *left[1:]]
        results = {name: {"reason": why} for name, why in job.failed.items()}
        self._keep(job.row() | {"reason": f"{step}: {reason}", "results": results})
        return left[1:]

    def _process(self, jobs: Sequence[Job]) -> tuple[int, str | None]:
        """One process: how many jobs it has done, and why it ended in the next one, or None."""
        self._done, self._step, self._failure = 0, "start", None
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                json.dump(
                    {"settings": asdict(self._settings), "jobs": [job.to_json() for job in jobs]},
                    process.stdin,
                )
                process.stdin.close()
            reason = self._followed(process, jobs)
            return self._done, reason
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _followed(self, process: subprocess.Popen[str], jobs: Sequence[Job]) -> str | None:
        lines = _lines(process)
        deadline = time.monotonic() + self._limit
        while True:
            try:
                line = lines.get(timeout=max(0.0, min(deadline, self._end or deadline) - time.monotonic()))
            except queue.Empty:
                if self._end is not None and time.monotonic() >= self._end:
                    raise OutOfTime from None
                return f"it took longer than {self._limit:.0f} s"
            if line is None:
                code = process.wait()
                ended = f"the process ended with code {code}"
                return None if self._done == len(jobs) else self._failure or ended
            deadline = time.monotonic() + self._limit
            self._heard(json.loads(line), jobs)

    def _heard(self, event: dict[str, Any], jobs: Sequence[Job]) -> None:
        if event["event"] == "row":
            self._done += 1
            self._keep(event["row"])
            return
        title = jobs[self._done].title if self._done < len(jobs) else ""
        if event["event"] == "begin":
            self._step, self._failure = event["step"], None
            self._say(f"{title}: {self._step}")
        elif event["event"] == "failed":
            self._failure = event["reason"]
            self._say(f"{title}: {self._step}: {self._failure}")


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """The lines that a process writes, and None at their end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


__all__ = ["MODEL", "REFERENCE", "TIMING", "OutOfTime", "Runner"]
