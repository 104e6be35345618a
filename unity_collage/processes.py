"""A child process that answers requests: JSON, a line each way, over a socket of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

Reply = dict[str, Any]
"""What a child answers; ``reason`` is there when it could not do what was asked."""


class Child:
    """A Python process, started when first asked, and again after it has ended. Use as a context manager."""

    def __init__(self, command: Sequence[str], hello: Mapping[str, Any], timeout_seconds: float):
        self._command = tuple(command)
        self._hello = dict(hello)
        self._timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._received = b""

    def ask(self, request: Mapping[str, Any]) -> Reply:
        """The child's reply; its end, or a silence longer than the limit, is a reply with a ``reason``."""
        connection = self._connected()
        try:
            connection.sendall(json.dumps(dict(request)).encode() + b"\n")
            return json.loads(self._line(connection))
        except TimeoutError:
            self.close()
            return {"reason": f"no answer within {self._timeout_seconds:g} s", "timeout": True}
        except (ConnectionError, BrokenPipeError):
            return {"reason": self._why_gone()}

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended as far as is known."""
        return self._process is not None

    def close(self) -> None:
        """End the process."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None
        self._received = b""

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, *self._command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=child_environment(),
            # Python looks for packages in the working directory first: a checkout there has no native part.
            cwd="/",
            # Ctrl-C in a terminal reaches every process there; this one is for us to end.
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(self._timeout_seconds)
        ours.sendall(json.dumps(self._hello).encode() + b"\n")
        self._socket = ours
        return ours

    def _line(self, connection: socket.socket) -> bytes:
        while b"\n" not in self._received:
            chunk = connection.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        return line

    def _why_gone(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        self.close()
        if code < 0:
            return f"the process crashed: {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"


def child_environment() -> dict[str, str]:
    """This process's environment, with numpy's own BLAS on one thread: its pool would spin against ours."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


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
