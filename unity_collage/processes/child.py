"""Child processes that answer messages: JSON, a line each way, over a socket of their own.

:class:`Process` is one process. :class:`Child` asks one, and starts another after it has ended. :func:`serve` is the
other end of a child.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from ..machine.environment import environment, on_usable_cores

Message = dict[str, Any]

Reply = Message
"""What a child answers; ``reason`` is there when it could not do what was asked."""

STARTING_SECONDS = 300.0
"""For the first answer besides what it takes itself: importing TVM takes seconds, on a busy machine many."""


class Gone(Exception):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process has ended, as far as that can be seen from outside."""

    code: int
    """Its exit code; below 0 the signal that has ended it."""
    peak_bytes: int
    """The most memory that it had in use."""
    last_words: str
    """The last line of what it has written to standard error."""

    @property
    def signal_name(self) -> str:
        """``SIGSEGV``; empty for a process that has ended by itself."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    def __str__(self) -> str:
        how = f"crashed: {self.signal_name}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"the process {how}: {self.last_words}".rstrip(": ")


class Process:
    """A Python process, started when this is made. It gets ``hello`` first."""

    def __init__(self, command: Sequence[str], hello: Mapping[str, Any]):
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._socket, theirs = socket.socketpair()
        with theirs, on_usable_cores():
            self._process = subprocess.Popen(
                [sys.executable, *command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=self._said,
                env=environment(),
                # Python looks for packages in the working directory first: a checkout there has no native part.
                cwd="/",
                # Ctrl-C in a terminal reaches every process there; this one is for us to end.
                start_new_session=True,
            )
        self._received = b""
        with suppress(Gone):  # then the first question is told
            self.send(hello)

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises Gone when nobody is there to read it, TimeoutError when nobody does."""
        try:
            self._socket.settimeout(STARTING_SECONDS)
            self._socket.sendall(json.dumps(dict(message)).encode() + b"\n")
        except ConnectionError as error:
            raise Gone from error

    def receive(self, timeout_seconds: float) -> Message:
        """The next message; raises TimeoutError after a silence of so long, Gone at the end."""
        self._socket.settimeout(timeout_seconds)
        while b"\n" not in self._received:
            try:
                chunk = self._socket.recv(1 << 16)
            except ConnectionError as error:
                raise Gone from error
            if not chunk:
                raise Gone
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        return cast(Message, json.loads(line))

    def ending(self) -> Ending:
        """How the process has ended; waits for it, so ask after Gone. Call it once."""
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return Ending(code, usage.ru_maxrss * 1024, lines[-1] if lines else "")

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._said.close()
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()


class Child:
    """A process with one reply to each request, started when first asked, and again after it has ended.

    Use as a context manager.
    """

    def __init__(self, command: Sequence[str], hello: Mapping[str, Any], timeout_seconds: float):
        self._command = tuple(command)
        self._hello = dict(hello)
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None

    def ask(self, request: Mapping[str, Any]) -> Reply:
        """The child's reply; its end, or a silence longer than the limit, is a reply with a ``reason``."""
        seconds = self._timeout_seconds
        if self._process is None:
            self._process, seconds = Process(self._command, self._hello), seconds + STARTING_SECONDS
        try:
            self._process.send(request)
            return self._process.receive(seconds)
        except TimeoutError:
            reason = f"no answer within {seconds:g} s"
        except Gone:
            reason = str(self._process.ending())
        self.close()
        return {"reason": reason}

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended as far as is known."""
        return self._process is not None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(make: Callable[[dict[str, Any]], Callable[[dict[str, Any]], Reply]]) -> None:
    """The child's side: ``make`` gets the hello and returns what answers requests; until the other end closes.

    An exception is an answer with its last line as the reason: a foreign compiler or kernel has failed.
    """
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:
        answer: Callable[[dict[str, Any]], Reply] | None = None
        hello = json.loads(requests.readline())
        for line in requests:
            try:
                answer = answer or make(hello)
                reply = answer(json.loads(line))
            except Exception as error:
                reply = {"reason": f"{type(error).__name__}: {last_line(error)}"}
            try:
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except BrokenPipeError:
                return


def last_line(error: BaseException) -> str:
    """The last line of what an error says: compilers put the cause there."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else ""
