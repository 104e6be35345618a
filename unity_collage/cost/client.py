"""The parent's end of the worker process: asks, waits for so long, and starts another after a crash."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any

from .method import Method


class WorkerClient:
    """One worker process, started when first asked. Use as a context manager."""

    def __init__(
        self,
        threads: int,
        method: Method,
        timeout_seconds: float,
        command: tuple[str, ...] = ("-m", "unity_collage.cost.worker"),
    ):
        self._command = command
        self._hello = {"threads": threads, "method": asdict(method)}
        self._timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._received = b""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply; a crash or a silence longer than the limit is a reply with a ``reason``."""
        connection = self._connected()
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(self._line(connection))
        except TimeoutError:
            self.close()
            return {"reason": f"no answer within {self._timeout_seconds:g} s", "timeout": True}
        except (ConnectionError, BrokenPipeError):
            return {"reason": self._why_gone()}

    def close(self) -> None:
        """End the worker process."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None
        self._received = b""

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        ours, theirs = socket.socketpair()
        command = [sys.executable, *self._command, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=worker_environment(),
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
            return f"the kernel crashed the process: {signal.Signals(-code).name}"
        return f"the kernel ended the process with exit code {code}"


def worker_environment() -> dict[str, str]:
    """This process's environment, with numpy's own BLAS on one thread: its pool would spin against ours."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
