"""One child process that exchanges messages with its parent: JSON, a line each way, over a socket of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from ..machine.environment import environment, on_usable_cores

Message = dict[str, Any]

STARTING_SECONDS = 300.0
"""The limit until a process is ready: importing TVM takes seconds, and far longer on a busy machine."""


class Gone(Exception):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process has ended, as its parent can see it."""

    code: int
    """The exit code; below 0 the signal that ended the process."""
    peak_bytes: int
    """The most memory that the process used."""
    last_words: str
    """The last line that the process wrote to standard error."""

    @property
    def signal_name(self) -> str:
        """``SIGSEGV``; empty for a process that ended by itself."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    def __str__(self) -> str:
        how = f"crashed: {self.signal_name}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"the process {how}: {self.last_words}".rstrip(": ")


class Process:
    """A Python process that runs ``module``. It starts at once, and ``hello`` is its first message."""

    def __init__(self, module: str, hello: Mapping[str, Any]):
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._socket, theirs = socket.socketpair()
        with theirs, on_usable_cores():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unity_collage.processes.launcher", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=self._said,
                env=environment(),
                # Python looks for packages in the working directory first: a checkout there has no native part.
                cwd="/",
                # Ctrl-C in a terminal reaches every process there; this one is ended by its parent.
                start_new_session=True,
            )
        self._received = b""
        with suppress(Gone):  # the first question finds out
            self.send(hello)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; raises Gone when the process has ended, TimeoutError when it does not read."""
        try:
            self._socket.settimeout(STARTING_SECONDS)
            self._socket.sendall(json.dumps(dict(message)).encode() + b"\n")
        except ConnectionError as error:
            raise Gone from error

    def receive(self, timeout_seconds: float) -> Message:
        """The next message; raises TimeoutError after ``timeout_seconds`` of silence, Gone at its end."""
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
        """How the process has ended. It waits for the end, so call it once, after Gone."""
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
